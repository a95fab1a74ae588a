"""Nominal level of each look of the confirmation, so that all looks together keep the error rate.

    python -m benchmarks.looks [--json OUT]

Simulates studies in which an arm is exactly as fast as the default: after 4, 6, 9, 12 and 18 rounds
a two-sided t test looks at the differences. The smallest p value over the looks of each study has
a distribution; its quantile at the family's error rate is the level to test each look at. A budget
may also end between two looks, which makes its last round a look: the last column is the largest
error rate over every round at which that may happen.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from scipy import stats

from tuner.measurement.confirmation import LOOKS, nominal_alpha

FAMILY = (0.05, 0.025, 0.05 / 3, 0.01, 0.005, 0.0025, 0.00125)


LASTS = range(LOOKS[0], LOOKS[-1] + 1)


def smallest_p_values(n_studies: int, seed: int) -> np.ndarray:
    """Return the smallest p value over the looks, of studies of a true null.

    One row per round at which the budget may end, (15, n_studies): the last is all looks.
    """
    random = np.random.default_rng(seed)
    smallest = np.ones((len(LASTS), n_studies))
    chunk = 20_000
    for start in range(0, n_studies, chunk):
        d = random.standard_normal((min(chunk, n_studies - start), LOOKS[-1]))
        looked = np.ones(len(d))
        for row, n in enumerate(LASTS):
            part = d[:, :n]
            t = part.mean(1) / (part.std(1, ddof=1) / np.sqrt(n))
            p = np.minimum(looked, 2 * stats.t.sf(np.abs(t), n - 1))
            smallest[row, start : start + chunk] = p
            looked = p if n in LOOKS else looked
    return smallest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--studies", type=int, default=400_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the table there as well")
    arguments = parser.parse_args()
    smallest = smallest_p_values(arguments.studies, arguments.seed)
    rows = []
    for alpha in FAMILY:
        used = nominal_alpha(alpha)
        rows.append(
            {
                "family_error": alpha,
                "simulated_level": float(np.quantile(smallest[-1], alpha)),
                "level_in_use": used,
                "error_at_level_in_use": float((smallest[-1] <= used).mean()),
                "worst_error_if_cut_short": float((smallest <= used).mean(axis=1).max()),
            }
        )
    print("family error   simulated level   level in use   error with it   worst if cut short")
    for row in rows:
        print(
            "{family_error:12.5f}   {simulated_level:15.6f}   {level_in_use:12.6f}   "
            "{error_at_level_in_use:13.5f}   {worst_error_if_cut_short:18.5f}".format(**row)
        )
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
