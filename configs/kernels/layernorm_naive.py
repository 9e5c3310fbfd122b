"""y = (x - mean) / sqrt(var + eps) * weight + bias over each row, float32: three passes over the row in memory."""

import torch
import triton
import triton.language as tl


@triton.jit
def layernorm_rows(x_ptr, weight_ptr, bias_ptr, y_ptr, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * cols
    lanes = tl.arange(0, BLOCK)

    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, cols, BLOCK):
        total += tl.load(x_ptr + row + start + lanes, mask=start + lanes < cols, other=0.0)
    mean = tl.sum(total) / cols

    squares = tl.zeros([BLOCK], tl.float32)
    for start in range(0, cols, BLOCK):
        x = tl.load(x_ptr + row + start + lanes, mask=start + lanes < cols, other=0.0)
        centred = tl.where(start + lanes < cols, x - mean, 0.0)
        squares += centred * centred
    scale = 1.0 / tl.sqrt(tl.sum(squares) / cols + eps)

    for start in range(0, cols, BLOCK):
        mask = start + lanes < cols
        x = tl.load(x_ptr + row + start + lanes, mask=mask, other=0.0)
        weight = tl.load(weight_ptr + start + lanes, mask=mask, other=0.0)
        bias = tl.load(bias_ptr + start + lanes, mask=mask, other=0.0)
        tl.store(y_ptr + row + start + lanes, (x - mean) * scale * weight + bias, mask=mask)


def setup(rows, cols, seed):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    generator = torch.Generator(device).manual_seed(seed)
    inputs = {
        "x": torch.randn(rows, cols, device=device, generator=generator),
        "weight": torch.randn(cols, device=device, generator=generator),
        "bias": torch.randn(cols, device=device, generator=generator),
        "y": torch.empty(rows, cols, device=device),
        "rows": rows,
        "cols": cols,
        "eps": 1e-5,
    }
    return {"inputs": inputs, "outputs": ["y"]}


def run_kernel(x, weight, bias, y, rows, cols, eps):
    layernorm_rows[(rows,)](x, weight, bias, y, cols, eps, BLOCK=256)
