"""How numbers and foreign text are shown, everywhere the same.

Times and rates have four significant digits and a unit; what is not known is `–`, never 0.
"""

from __future__ import annotations

import math
from datetime import datetime, timezone

MISSING = "–"


def significant(value: float, digits: int = 4) -> str:
    """`12.3` as `12.30`, `123456` as `123456`: rounded to `digits`, trailing zeros kept, no exponent."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else str(value)
    rounded = float(f"{value:.{digits - 1}e}")
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(rounded))))
    return f"{rounded:.{decimals}f}"


def duration(ms: float | None) -> str:
    """A kernel's time (in ms) in the unit that reads best: `12.30 ms`, `45.60 µs`, `12.30 s`."""
    if ms is None:
        return MISSING
    size = abs(ms)
    if 0 < size < 0.1:
        return f"{significant(ms * 1e3)} µs"
    return f"{significant(ms)} ms" if size < 1e4 else f"{significant(ms / 1e3)} s"


def difference(ms: float | None, low: float | None = None, high: float | None = None) -> str:
    """A signed time with its interval, in one unit: `+1.234 ms [1.100, 1.400]`."""
    if ms is None:
        return MISSING
    scale, unit = (1e3, "µs") if 0 < max(abs(ms), abs(low or 0), abs(high or 0)) < 0.1 else (1.0, "ms")
    text = f"{'+' if ms > 0 else ''}{significant(ms * scale)} {unit}"
    if low is None or high is None:
        return text
    return f"{text} [{significant(low * scale)}, {significant(high * scale)}]"


def speedup(value: float | None, low: float | None = None, high: float | None = None) -> str:
    """`3.21× [3.05, 3.40]`; under 2 a third decimal, because there it decides."""
    if value is None:
        return MISSING
    decimals = 3 if value < 2 else 2 if value < 10 else 1 if value < 100 else 0
    text = f"{value:.{decimals}f}×"
    return text if low is None or high is None else f"{text} [{low:.{decimals}f}, {high:.{decimals}f}]"


def rate(amount: float | None, ms: float | None, unit: str) -> str:
    """`amount` per call over `ms` per call, in billions per second: `12.34 GFLOP/s`."""
    return MISSING if amount is None or not ms else f"{significant(amount / ms / 1e6)} {unit}"


def giga(per_second: float | None, unit: str) -> str:
    """A rate per second in billions: `12.34 GB/s`."""
    return MISSING if per_second is None else f"{significant(per_second / 1e9)} {unit}"


def size(amount: float | None) -> str:
    """Bytes in the unit that reads best: `812 B`, `7.203 GB`."""
    if amount is None:
        return MISSING
    for unit, least in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if amount >= least:
            return f"{significant(amount / least)} {unit}"
    return f"{amount:.0f} B"


def quantity(value: float) -> str:
    """A metric of any unit: `64.35`, and where digits would have to be counted `29.91 G`."""
    for letter, least in (("G", 1e9), ("M", 1e6)):
        if abs(value) >= least:
            return f"{significant(value / least)} {letter}"
    return significant(value)


def per_second(value: float, unit: str) -> str:
    """A rate in the unit that reads best: `63.61 TFLOP/s`, `41.87 GB/s`."""
    return f"{significant(value / 1e12)} T{unit}" if value >= 1e12 else f"{significant(value / 1e9)} G{unit}"


def percent(fraction: float | None) -> str:
    """A share: `12.3%`."""
    return MISSING if fraction is None else f"{100 * fraction:.1f}%"


def share(value: float | None) -> str:
    """A 0-1 value with two decimals."""
    return MISSING if value is None else f"{value:.2f}"


def dollars(usd: float | None) -> str:
    """`$0.42`; four decimals under ten cents; `–` when a price is unknown."""
    if usd is None:
        return MISSING
    return f"${usd:.4f}" if 0 < usd < 0.1 else f"${usd:.2f}"


def wall(seconds: float) -> str:
    """Wall time: `8 s`, `2:05`, `1:02:05`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"


def count(value: float) -> str:
    """Tokens and the like: `812`, `12.3k`, `4.56M`."""
    if value < 1000:
        return f"{value:.0f}"
    return f"{value / 1e3:.1f}k" if value < 1e6 else f"{value / 1e6:.2f}M"


def instant(at: str) -> str:
    """An event's time to the second, UTC: `2026-11-30T01:00:12Z`."""
    return datetime.fromisoformat(at).astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def minute(at: str) -> str:
    """An event's time to the minute: `2026-11-30 01:00 UTC`."""
    return datetime.fromisoformat(at).astimezone(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")


def one_line(text: str) -> str:
    """Text from a compiler or a model made fit for a line: no breaks, nothing that a terminal would obey."""
    return "".join(c if c.isprintable() else " " for c in " ".join(text.split()))


def shortened(text: str, most: int) -> str:
    """One line of at most `most` characters, cut with an ellipsis."""
    line = one_line(text)
    return line if len(line) <= most else f"{line[: most - 1]}…"
