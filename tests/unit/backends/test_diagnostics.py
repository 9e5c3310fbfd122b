"""What a user loses: a prompt full of template noise, or one without the line that is wrong."""

from __future__ import annotations

from backends.diagnostics import MAX_BYTES, MAX_LINES, bounded, errors_only, first_error

GCC = """In file included from /usr/include/c++/12/algorithm:61,
                 from kernel.cpp:1:
kernel.cpp: In function 'void solve(float*)':
kernel.cpp:3:7: warning: unused variable 'x' [-Wunused-variable]
    3 |   int x;
      |       ^
/usr/include/c++/12/bits/stl_algo.h: In instantiation of 'void std::sort(_RAIter, _RAIter)':
/usr/include/c++/12/bits/stl_algo.h:4820:18:   required from 'void std::sort(_RAIter, _RAIter)'
kernel.cpp:9:12:   required from here
/usr/include/c++/12/bits/stl_algo.h:1938:22: error: no match for 'operator-'
 1938 |                                 std::__lg(__last - __first) * 2,
      |                                           ~~~~~~~^~~~~~~~~
/usr/include/c++/12/bits/stl_iterator.h:500:5: note: candidate: 'template<class T> ...'
  500 |     operator-(const reverse_iterator<_Iterator>& __x,
      |     ^~~~~~~~
kernel.cpp:12:3: error: 'y' was not declared in this scope
   12 |   y = 3;
      |   ^
"""


def test_errors_stay_and_noise_goes() -> None:
    text = errors_only(GCC, "kernel.cpp")
    assert text.splitlines()[:3] == [
        "kernel.cpp:9:12:   required from here",
        "/usr/include/c++/12/bits/stl_algo.h:1938:22: error: no match for 'operator-'",
        " 1938 |                                 std::__lg(__last - __first) * 2,",
    ]
    assert "kernel.cpp:12:3: error: 'y' was not declared in this scope\n   12 |   y = 3;" in text
    assert "warning" not in text
    assert "candidate" not in text
    assert text.endswith("more lines left out]")


def test_first_error_is_the_one_with_a_line_not_the_drivers() -> None:
    assert first_error(GCC).startswith("/usr/include/c++/12/bits/stl_algo.h:1938:22: error: no match")
    linker = (
        "/usr/bin/ld: tmp/cc.o: in function `solve':\n"
        "kernel.cpp:(.text+0x5): undefined reference to `helper(float*)'\ncollect2: error: ld returned 1 exit status\n"
    )
    assert first_error(linker) == "kernel.cpp:(.text+0x5): undefined reference to `helper(float*)'"
    assert first_error("g++: fatal error: Killed signal terminated program cc1plus\ncompilation terminated.") == (
        "g++: fatal error: Killed signal terminated program cc1plus"
    )
    assert first_error("") == "the compiler failed and said nothing"


def test_a_flood_is_cut() -> None:
    flood = "".join(f"kernel.cpp:{n}:1: error: {'x' * 2000}\n" for n in range(5000))
    text = errors_only(flood, "kernel.cpp")
    assert len(text.encode()) <= MAX_BYTES + 40
    assert len(text.splitlines()) <= MAX_LINES + 1
    assert text.startswith("kernel.cpp:0:1: error: xxx")


def test_output_in_no_known_form_is_kept_from_its_start() -> None:
    assert errors_only("something odd\nhappened\n", "kernel.cpp") == "something odd\nhappened"
    assert bounded("a\n" * 100).splitlines()[-1] == f"[{100 - MAX_LINES} more lines left out]"
