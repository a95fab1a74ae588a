"""What OpenMP runtimes read."""

from __future__ import annotations

from tuner.space.knob import (
    AT_LEAST_0,
    AT_LEAST_1,
    SWITCH,
    Domain,
    list_of,
    one_of,
    variable,
    written,
)

_BARRIER = written(
    list_of("(linear|tree|hyper|hierarchical|dist)"),
    "one or two of linear, tree, hyper, hierarchical and dist, with a comma between",
)
KNOBS = (
    variable(
        "OMP_NUM_THREADS",
        "intra-op threads of PyTorch (OpenMP)",
        domain=Domain(
            at_least=1,
            grammar=list_of(r"0*[1-9]\d{0,8}"),
            meaning="a list of these, one for each level of nesting",
        ),
    ),
    variable("MKL_NUM_THREADS", "threads of MKL, and of PyTorch with it", domain=AT_LEAST_1),
    variable(
        "OMP_WAIT_POLICY",
        "whether waiting threads spin (ACTIVE) or sleep (PASSIVE)",
        domain=one_of("ACTIVE", "PASSIVE"),
    ),
    variable(
        "OMP_PROC_BIND",
        "binding of threads to places",
        domain=written(
            f"true|false|{list_of('(master|primary|close|spread)')}",
            "TRUE, FALSE, or a list of MASTER, PRIMARY, CLOSE and SPREAD",
        ),
    ),
    variable(
        "OMP_PLACES",
        "what a place is: a core or a hardware thread",
        domain=written(
            r"(threads|cores|sockets|ll_caches|numa_domains)( *\( *\d+ *\))?|[-{}!0-9,: ]+",
            "threads, cores, sockets, ll_caches, numa_domains, or a list such as {0:4},{4:4}",
        ),
    ),
    variable(
        "OMP_SCHEDULE",
        "schedule of loops that leave it open",
        domain=written(
            r"((non)?monotonic *: *)?"
            r"(static|dynamic|guided|auto|trapezoidal|static_steal)( *, *\d+)?",
            "STATIC, DYNAMIC, GUIDED or AUTO, and a chunk after a comma",
        ),
    ),
    variable("OMP_DYNAMIC", "whether the runtime may use fewer threads", domain=SWITCH),
    variable("OMP_THREAD_LIMIT", "upper bound of threads", domain=AT_LEAST_1),
    variable(
        "GOMP_CPU_AFFINITY",
        "CPUs of libgomp's threads, in order",
        domain=written(list_of(r"\d+(-\d+(:\d+)?)?", "[ ,]"), "a list of CPUs such as 0 3 4-15:2"),
    ),
    variable(
        "KMP_AFFINITY",
        "binding of threads in libiomp5 and libomp",
        domain=written(
            list_of(
                r"(granularity=\w+|proclist=\[[-\d,{}: ]+\]|(no)?(respect|verbose|warnings|reset)"
                r"|balanced|compact|disabled|explicit|none|scatter|physical|logical|\d+)"
            ),
            "such as granularity=fine,compact,1,0",
        ),
    ),
    variable(
        "KMP_BLOCKTIME",
        "milliseconds that waiting threads spin in libiomp5 and libomp",
        domain=Domain(
            at_least=0,
            grammar=r"\d{1,9} *(us|ms|s)|infinit(e|y)",
            meaning="a number with the unit us, ms or s; infinite",
        ),
    ),
    variable(
        "KMP_TPAUSE", "waiting by the tpause instruction in libiomp5 and libomp", domain=AT_LEAST_0
    ),
    variable("KMP_FORKJOIN_BARRIER_PATTERN", "barrier around parallel regions", domain=_BARRIER),
    variable("KMP_PLAIN_BARRIER_PATTERN", "barrier between pieces of work", domain=_BARRIER),
    variable("KMP_REDUCTION_BARRIER_PATTERN", "barrier of reductions", domain=_BARRIER),
)
