"""Runs benchmarks and prints their rows: name | value | unit | compared with | ratio."""

import importlib
import json
import pkgutil
import signal
import sys
from pathlib import Path

import bench
from bench.rows import Row

RESULTS = Path(__file__).parent / "results"


def names() -> list[str]:
    """The benchmarks: modules of this folder. What they share lies in folders below."""
    found = [module.name for module in pkgutil.iter_modules(bench.__path__) if not module.ispkg]
    return [name for name in found if name not in ("__main__", "rows")]


def main(wanted: list[str]) -> int:
    unknown = set(wanted) - set(names())
    if unknown:
        print(f"no benchmark {', '.join(sorted(unknown))}; there are: {', '.join(names())}", file=sys.stderr)
        return 2
    # Ended by a time limit, a benchmark leaves no host running either.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    RESULTS.mkdir(exist_ok=True)
    for name in wanted or names():
        rows: list[Row] = []
        for row in importlib.import_module(f"bench.{name}").measure():
            print(row, flush=True)  # at once: what was measured is not lost when the rest fails
            rows.append(row)
        (RESULTS / f"{name}.json").write_text(json.dumps([vars(row) for row in rows], indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
