"""Draws charts in one process for all tests that draw; V8 takes two seconds to start.

    python -P drawer.py DRAWING_PY

Each line of standard input is a JSON list of specifications, each line of the output one of SVG.
"""

import json
import runpy
import sys


def main() -> None:
    draw = runpy.run_path(sys.argv[1])["draw"]
    for line in sys.stdin:
        print(json.dumps(draw(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
