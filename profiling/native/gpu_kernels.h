// Our own kernels around a timed call, as PTX: no CUDA compiler is needed where this is built.
#pragma once

// `lead` holds every thread of the device for `hold_ns`, then reads `chunks` of 16 bytes `passes` times. Its blocks end
// together: each counts itself at `arrived` and waits, for 50 us at most, until there are `all`. The last to come leaves
// at `left` when it came, before any of them ends; so does one that waits no longer, and the earliest stays. Before that
// it leaves 64 random bytes in each of `outputs` ranges (address and size in bytes, at `table`). `stamp` leaves the time.
// The driver compiles both.
static const char own_kernels[] = R"(
.version 6.0
.target sm_50
.address_size 64
.visible .entry stamp(.param .u64 at)
{
    .reg .b64 %d<3>;
    ld.param.u64 %d1, [at];
    mov.u64 %d2, %globaltimer;
    st.global.u64 [%d1], %d2;
    ret;
}
.visible .entry lead(.param .u64 buffer, .param .u64 chunks, .param .u64 hold_ns, .param .u32 passes,
                     .param .u64 arrived, .param .u32 all, .param .u64 left,
                     .param .u64 table, .param .u32 outputs, .param .u64 seed)
{
    .reg .pred %p<4>;
    .reg .b32 %r<16>;
    .reg .b64 %d<14>;
    ld.param.u64 %d1, [buffer];
    ld.param.u64 %d2, [chunks];
    ld.param.u64 %d3, [hold_ns];
    ld.param.u32 %r1, [passes];
    mov.u64 %d4, %globaltimer;
    add.u64 %d4, %d4, %d3;
HOLD:
    mov.u64 %d5, %globaltimer;
    setp.lt.u64 %p1, %d5, %d4;
    @%p1 bra HOLD;
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.u32 %r5, %r2, %r3, %r4;
    mov.u32 %r6, %nctaid.x;
    mul.lo.u32 %r7, %r6, %r3;
    cvt.u64.u32 %d6, %r5;
    cvt.u64.u32 %d7, %r7;
    mov.u32 %r8, 0;
PASS:
    setp.eq.u32 %p1, %r1, 0;
    @%p1 bra READY;
    sub.u32 %r1, %r1, 1;
    mov.u64 %d8, %d6;
READ:
    setp.ge.u64 %p2, %d8, %d2;
    @%p2 bra PASS;
    shl.b64 %d9, %d8, 4;
    add.u64 %d9, %d9, %d1;
    ld.volatile.global.v4.u32 {%r9, %r10, %r11, %r12}, [%d9];
    xor.b32 %r9, %r9, %r10;
    xor.b32 %r11, %r11, %r12;
    xor.b32 %r8, %r8, %r9;
    xor.b32 %r8, %r8, %r11;
    add.u64 %d8, %d8, %d7;
    bra READ;
READY:
    setp.ne.u32 %p3, %r8, 1592594132;
    @%p3 bra SPOIL;
    st.global.u32 [%d1], %r8;
SPOIL:
    ld.param.u32 %r1, [outputs];
    shr.u32 %r2, %r5, 6;
    setp.ge.u32 %p1, %r2, %r1;
    @%p1 bra MEET;
    ld.param.u64 %d1, [table];
    mul.wide.u32 %d2, %r2, 16;
    add.u64 %d1, %d1, %d2;
    ld.global.u64 %d2, [%d1];
    ld.global.u64 %d3, [%d1+8];
    ld.param.u64 %d4, [seed];
    mul.lo.u64 %d5, %d6, 11400714819323198485;
    add.u64 %d4, %d4, %d5;
    shr.u64 %d5, %d4, 30;
    xor.b64 %d4, %d4, %d5;
    mul.lo.u64 %d4, %d4, 13787848793156543929;
    shr.u64 %d5, %d4, 27;
    xor.b64 %d4, %d4, %d5;
    mul.lo.u64 %d4, %d4, 10723151780598845931;
    shr.u64 %d5, %d4, 31;
    xor.b64 %d4, %d4, %d5;
    rem.u64 %d5, %d4, %d3;
    add.u64 %d2, %d2, %d5;
    st.global.u8 [%d2], %d4;
    membar.gl;
MEET:
    bar.sync 0;
    setp.ne.u32 %p1, %r4, 0;
    @%p1 bra LEAVE;
    ld.param.u64 %d10, [arrived];
    ld.param.u32 %r13, [all];
    ld.param.u64 %d11, [left];
    mov.u64 %d5, %globaltimer;
    add.u64 %d4, %d5, 50000;
    atom.global.add.u32 %r14, [%d10], 1;
    add.u32 %r14, %r14, 1;
    setp.eq.u32 %p1, %r14, %r13;
    @%p1 bra LAST;
WAIT:
    ld.volatile.global.u32 %r14, [%d10];
    sub.u32 %r15, %r14, %r13;
    setp.ge.s32 %p1, %r15, 0;
    @%p1 bra LEAVE;
    mov.u64 %d5, %globaltimer;
    setp.lt.u64 %p2, %d5, %d4;
    @%p2 bra WAIT;
LAST:
    atom.global.min.u64 %d12, [%d11], %d5;
LEAVE:
    bar.sync 0;
    ret;
}
)";
