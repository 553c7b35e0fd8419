"""Interleaved timing of rivals in one run: wall and CPU seconds side by side."""

import gc
import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple

IS_FULL = os.environ.get("VIRTUALSTACK_BENCHMARK") == "full"
"""Whether benchmarks run at their full size; tiny sizes otherwise, to see that they run."""


class Timing(NamedTuple):
    """Wall and CPU seconds of the quickest run of a rival, and what it gave."""

    wall: float
    cpu: float
    result: Any


def interleaved(title: str, rivals: dict[str, Callable[[], Any]], repeats: int = 5) -> dict[str, Timing]:
    """Run rivals in turn, ``repeats`` times, and print the quickest run of each and the ratio to the first."""
    best: dict[str, Timing] = {}
    for _ in range(repeats if IS_FULL else 1):
        for name, run in rivals.items():
            gc.collect()
            wall, cpu = time.perf_counter(), time.process_time()
            result = run()
            timing = Timing(time.perf_counter() - wall, time.process_time() - cpu, result)
            if name not in best or timing.wall < best[name].wall:
                best[name] = timing
    first = next(iter(best.values()))
    print(f"\n{title}")
    for name, timing in best.items():
        print(
            f"  {name:<14} wall {timing.wall * 1e3:9.1f} ms  cpu {timing.cpu * 1e3:9.1f} ms"
            f"  x{timing.wall / first.wall:.1f} wall  x{timing.cpu / max(first.cpu, 1e-9):.1f} cpu"
        )
    return best
