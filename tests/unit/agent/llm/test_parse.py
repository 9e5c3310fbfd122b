"""Reading answers: tolerant of what is around them, exact about what is in them, and never fooled by a cut one."""

from __future__ import annotations

import pytest

from agent.llm.parse import Unreadable, extract_code, extract_json

KERNEL = '#include <cstddef>\nextern "C" void solve(float* C) {\n    C[0] = 1.0f;\n}\n'


@pytest.mark.parametrize(
    "text",
    [
        '{"a": {"b": [1, 2]}}',
        '\n\n{"a": {"b": [1, 2]}}\n',
        '```json\n{"a": {"b": [1, 2]}}\n```',
        'Here is the plan.\n\n```json\n{"a": {"b": [1, 2]}}\n```\nGood luck!',
        'Sure: {"a": {"b": [1, 2]}} as asked.',
        'The dims {M: 4} and code `for (;;) { x; }` aside, {"a": {"b": [1, 2]}}',
        'An open brace { in prose, then {"a": {"b": [1, 2]}}',
        'First {"x": 1} as an example.\n```json\n{"a": {"b": [1, 2]}}\n```',
        '~~~JSON\r\n{"a": {"b": [1, 2]}}\r\n~~~',
        '```\n{"a": {"b": [1, 2]}}\n```',
    ],
)
def test_the_object_is_found_in_whatever_surrounds_it(text: str) -> None:
    assert extract_json(text) == {"a": {"b": [1, 2]}}


def test_braces_and_fences_in_strings_are_text() -> None:
    text = 'x {"why": "use } and { and \\" here", "how": "```cpp\\nint x;\\n```"} y'
    assert extract_json(text) == {"why": 'use } and { and " here', "how": "```cpp\nint x;\n```"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("  \n", "empty"),
        ("I cannot help with that.", "no JSON object"),
        ('{"a": 1, "a": 2}', "'a' is there twice"),
        ('{"a": NaN}', "NaN"),
        ('{"a": -Infinity}', "Infinity"),
        ('{"a": 1e999}', "too large"),
        ('{"a": 1,}', "not valid"),
        ('{"a": [{"id": 1},]}', "not valid"),
        ("{'a': 1}", "not valid"),
        ('[{"a": 1}]', "list"),
        ('```json\n["a"]\n```', "list"),
        ('{"methods": [{"id": "tiling"}, {"id":', "cut off"),
        ('```json\n{"methods": [{"id": "tiling"}, {"id": "x"}', "cut off"),
        ('{"a": "never closed', "cut off"),
        ('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", "too deep"),
    ],
)
def test_what_cannot_be_read_says_why_to_the_model_that_wrote_it(text: str, reason: str) -> None:
    with pytest.raises(Unreadable, match=reason):
        extract_json(text)


@pytest.mark.parametrize(
    ("text", "language"),
    [
        (f"```cpp\n{KERNEL}```", "cpp"),
        (f"Here:\n\n```c++\n{KERNEL}```\nDone.", "cpp"),
        (f"```cuda\n{KERNEL}```", "cuda"),
        (f"```cpp\n{KERNEL}```", "cutlass"),
        (f"~~~~ cpp title=kernel\n{KERNEL}~~~~\n", "cpp"),
        (f"```\n{KERNEL}```", "cpp"),
        (f"```bash\nmake\n```\n```cpp\n{KERNEL}```\n```\nfaster: 3x\n```", "cpp"),
        (f"```cpp\nint x;\n```\nis replaced:\n```cpp\n{KERNEL}```\nand\n```cpp\nint y;\n```", "cpp"),
        (f"```cpp\n{KERNEL.replace('1.0f', '0.0f')}```\nCorrected:\n```cpp\n{KERNEL}```", "cpp"),
        (KERNEL, "cpp"),
    ],
)
def test_the_kernel_is_recovered_byte_for_byte(text: str, language: str) -> None:
    assert extract_code(text, language) == KERNEL


@pytest.mark.parametrize(
    "code",
    [
        "int x;\r\nint y;\r\n",
        "\n\nint x;\n\n\n",
        "\tint x; // ≤ 漢   \n",
        "/*\n```\nusage\n```\n*/\nint x;\n",
        "/* ```cpp\nint old;\n``` */ int x;\n",
        'const char* s = "/*";\nint x;\n',
        "char q = '\"'; /* it's\n```\n*/\n",
        'auto r = R"(\n/*\n)";\nint x;\n',
        "// /* not open\nint x;\n",
    ],
)
def test_nothing_in_the_code_is_lost_or_changed(code: str) -> None:
    assert extract_code(f"Text.\n```cpp\n{code}```\nText.", "cpp") == code


def test_a_docstring_with_a_fence_stays_in_its_kernel() -> None:
    code = 'def run_kernel():\n    """Use:\n\n    ```python\n    run()\n    ```\n    """\n    s = "#"\n'
    assert extract_code(f"```python\n{code}```", "triton") == code


def test_a_block_in_a_list_item_loses_the_indentation_of_the_list_only() -> None:
    assert (
        extract_code("1. Kernel:\n   ```cpp\n   if (x) {\n     y();\n   }\n   ```\n", "cpp") == "if (x) {\n  y();\n}\n"
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no fenced code block"),
        ("I would rather not.", "no fenced code block"),
        ("import this idea: use tiles", "no fenced code block"),
        (f"```cpp\n{KERNEL}", "not closed"),
        (f"```cpp\n{KERNEL}```\nand the second:\n```cpp\nint x", "not closed"),
        (f"```cpp\n{KERNEL}\n```cpp\n{KERNEL}```", "not closed"),
        ("```cpp\nint x; /* cut here\n```", "not closed"),
        ("```cpp\n\n```", "empty"),
        ("```python\nprint()\n```", "no code block in cpp, only in python"),
    ],
)
def test_no_kernel_is_made_of_what_is_none(text: str, reason: str) -> None:
    """Above all a cut answer: what compiles by chance would be measured."""
    with pytest.raises(Unreadable, match=reason):
        extract_code(text, "cpp" if "idea" not in text else "triton")


def test_every_cut_of_an_answer_is_refused() -> None:
    whole = f"The kernel:\n```cpp\n{KERNEL}```"
    for end in range(len(whole)):
        with pytest.raises(Unreadable):
            extract_code(whole[:end], "cpp")
