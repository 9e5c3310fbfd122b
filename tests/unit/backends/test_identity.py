"""What a user loses: a duplicate branch costs a build and a measurement; a wrong "duplicate" costs a good kernel."""

from __future__ import annotations

import pytest

from backends.identity import normalised_source, source_hash

KERNEL = """#include <cmath>
#define TILE 32
extern "C" void solve(const float* A, float* B, int N) {
    for (int i = 0; i < N; ++i) B[i] = A[i] * 2;
}
"""
SAME = {
    "comments": KERNEL.replace("{\n", "{ // hot loop, see [1]\n /* a\n long\n one */", 1).replace("32", "32 // tile"),
    "layout": KERNEL.replace("    for (int i = 0; i < N; ++i) B[i]", "\tfor(int i=0;i<N;++i)\n\n\t\tB [ i ]"),
    "blanks in a macro": KERNEL.replace("#define TILE 32", "  #  define TILE    32"),
    "line ends of Windows": KERNEL.replace("\n", "\r\n"),
    "spliced lines": KERNEL.replace("const float* A, ", "const float* A, \\\n"),
    "no newline at the end": KERNEL.rstrip(),
}


@pytest.mark.parametrize("change", SAME)
def test_layout_and_comments_do_not_matter(change: str) -> None:
    assert SAME[change] != KERNEL
    assert source_hash(SAME[change]) == source_hash(KERNEL)


DIFFERENT = [
    ("int x = a + +b;", "int x = a ++b;"),
    ("int x = 1; int y;", "intx = 1; int y;"),
    ('const char* s = "a  b";', 'const char* s = "a b";'),
    ('const char* s = "a // b";', 'const char* s = "a ";'),
    ('auto s = R"(/* kept */)";', 'auto s = R"()";'),
    ("char c = '\"'; // x\nint a;", "char c = '\"'; int b;"),
    ("#define F (x)\n", "#define F(x)\n"),
    ("#define A 1\n#define B 2\n", "#define A 1 #define B 2\n"),
    ("int a;\n#if X\nint b;\n#endif", "int a;\nint b;\n#if X\n#endif"),
    ("int n = 1'000;", "int n = 1'001;"),
    ("x = a / *p;", "x = a /*p*/;"),
    ("template <int N> void f();", "template <int M> void f();"),
]


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_different_programs_stay_different(one: str, other: str) -> None:
    assert source_hash(one) != source_hash(other)


def test_normalised_source_is_what_is_left() -> None:
    text = '#define N 4 /* four */ // tile\nint  f( ) { return N ; } // "end"\nconst char* s = "a  /* b */";\n'
    assert normalised_source(text) == '#define N 4\nint f(){return N;}const char*s="a  /* b */";'


def test_unfinished_text_does_not_raise() -> None:
    for text in ("", '"""\nhello \\\n"""', "void f( { /* open", 'const char* s = "open', "\x00", "é = ü; // ß"):
        assert len(source_hash(text)) == 64
