"""Models with a quality target that a processor reaches within a minute.

Sizes follow MLPerf Tiny, MLPerf EDU and Fathom. The data are drawn from a rule that can be learnt,
so that nothing is downloaded. Targets are the qualities that the default reaches after about as
many steps as stated, and which every one of 20 seeds reaches (benchmarks/time_to_target.py).
"""
