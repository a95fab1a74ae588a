"""What LoadGen may say, for tests of who asks it and of who tells it."""

from tuner.record.serving import LoadgenWord, Validation, Word

STOLEN = ("the hypervisor stole 3% of the CPU time",)


def said(word: Word, rate: float = 100.0, disturbed: tuple[str, ...] = ()) -> Validation:
    reason = "" if word == "valid" else "Reduce target QPS to improve latency."
    told = LoadgenWord(word, reason, rate, rate, 20.0, 2000, 40 * (word == "too_slow"), 0.1)
    return Validation(rate, told, disturbed=disturbed)
