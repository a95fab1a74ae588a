"""What a command line sets and where it places its program: env, taskset, docker run, and others.

Tables say which of a program's options take a value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

import msgspec

from tuner.deploy.env_file import read_env
from tuner.deploy.launched import (
    ASSIGNMENT,
    Assignment,
    Gap,
    Launched,
    LaunchFile,
    Scope,
    Value,
    settings_in,
)

_SHELLS = ("sh", "bash", "dash", "ash", "zsh", "ksh")
_BINARIES = ("bin", "sbin")
_ENGINES = ("docker", "podman", "nerdctl", "nvidia-docker")


class _Wrapper(msgspec.Struct, frozen=True):
    """A program that starts the program named behind its options."""

    valued: str = ""
    """Options that take a value, without their dashes."""
    n_words: int = 0
    """Words of its own that follow its options."""
    sets: bool = False
    """Whether NAME=VALUE may stand before the program."""


_WRAPPERS = {
    "env": _Wrapper("u unset C chdir S split-string", sets=True),
    "sudo": _Wrapper("u user g group p prompt C close-from D chdir R chroot T h host r role t U",
                     sets=True),
    "doas": _Wrapper("C u"),
    "exec": _Wrapper("a"),
    "command": _Wrapper(),
    "builtin": _Wrapper(),
    "nohup": _Wrapper(),
    "setsid": _Wrapper(),
    "time": _Wrapper("f format o output"),
    "nice": _Wrapper("n adjustment"),
    "ionice": _Wrapper("c class n classdata p pid"),
    "chrt": _Wrapper("T sched-runtime P sched-period D sched-deadline", 1),
    "stdbuf": _Wrapper("i input o output e error"),
    "timeout": _Wrapper("k kill-after s signal", 1),
    "gosu": _Wrapper("", 1),
    "su-exec": _Wrapper("", 1),
    "runuser": _Wrapper("u user g group G supp-group"),
    "tini": _Wrapper("p e"),
    "dumb-init": _Wrapper("r rewrite"),
    "catchsegv": _Wrapper(),
}  # fmt: skip
_CPU_OPTIONS = ("C", "physcpubind")
_NODE_OPTIONS = (
    "N cpunodebind c cpubind m membind i interleave p preferred P preferred-many "
    "w weighted-interleave"
)
_NUMACTL_FLAGS = "a all l localalloc b balancing s show H hardware h help v version"
_PLACED = re.compile(
    r"(?:^|[\s/;&|(\"'])(?:(taskset)\s+(?:-|\$|0x|\d)|(numactl)\s+[-$]\S.*\s[^-\s])", re.DOTALL
)
"""A program that places another, among the words of one that is not known."""
_DOCKER_FLAGS = (
    "d detach i interactive t tty it ti dit P publish-all q quiet rm privileged init read-only "
    "no-healthcheck oom-kill-disable sig-proxy disable-content-trust use-api-socket tls tlsverify "
    "D debug"
)
"""Of docker run, and of docker itself: every other option takes a value."""
_MPI = ("mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun")
_MPI_SETS = ("-x", "-genv", "-env")
_LAUNCHERS = {
    "torchrun", "ipexrun", "accelerate", "deepspeed", "srun", "cset", "cgexec", "cpulimit",
    "likwid-pin", "hwloc-bind", "schedtool", "torch.distributed.run", "torch.distributed.launch",
    "torch.backends.xeon.run_cpu", "intel_extension_for_pytorch.cpu.launch",
    "torchserve",
}  # fmt: skip
"""Programs and Python modules that set threads or CPUs by rules of their own."""


class Commands:
    """The commands of a file, as they are read one after the other."""

    def __init__(
        self,
        file: LaunchFile,
        launched: Launched,
        folder: Path,
        run_code: Callable[[Value, int], None] | None = None,
    ) -> None:
        """folder: of the file. run_code: read a text as the shell does that reads the commands."""
        self._file = file
        self._launched = launched
        self._folder = folder
        self._run_code = run_code or self._run_afresh
        self._is_certain = True
        self._name = ""
        self.number = 0
        """Which command this is; assignments for it alone have it."""

    def begin(self, is_certain: bool = True, name: str = "") -> None:
        """Begin a command; name: of the other file that it stands in."""
        self._launched.n_commands += 1
        self.number = self._launched.n_commands
        self._is_certain, self._name = is_certain, name

    def read(self, words: Sequence[Value], line: int) -> None:
        """Take the variables of a command, and the CPUs that it binds its program to."""
        left = list(words)
        while left:
            first = left.pop(0)
            name = first.text.rpartition("/")[2]
            if first.gap is not None:
                self._note(line, first.text, Gap.PROGRAM)
            elif wrapper := _WRAPPERS.get(name):
                left = self._unwrapped(wrapper, left, line)
            elif name == "taskset":
                left = self._taskset(left, line)
            elif name == "numactl":
                left = self._numactl(left, line)
            elif name == "systemd-run":
                left = self._systemd_run(left, line)
            elif name in _MPI:
                left = self._mpi(left, line)
            elif name in _ENGINES:
                self._engine(name, left, line)
                return
            elif name in _SHELLS:
                self._shell(left, line)
                return
            else:
                if _may_be_script(first.text):
                    self._note(line, first.text, Gap.ELSEWHERE)
                self._program(name, left, line)
                return

    def _run_afresh(self, code: Value, line: int) -> None:
        from tuner.deploy.shell import Shell  # which reads commands

        shell = Shell(self._file, self._launched, self._folder)
        shell.run_inside(code, line)
        shell.end()

    def _note(self, line: int, text: str, gap: Gap) -> None:
        self._launched.note(line, text, gap, self._name)

    def _set(self, word: Value, line: int, into: Launched | None = None) -> bool:
        """Take NAME=VALUE; return whether it is that. into: a container, for all that it runs."""
        match = ASSIGNMENT.fullmatch(word.text)
        if match is None:
            return False
        number = 0 if into is not None else self.number
        (into or self._launched).take(
            Assignment(match[1], match[2], line, number, self._is_certain, True, word.gap,
                       word.unless, file=self._name)
        )  # fmt: skip
        return True

    def _program(self, name: str, words: Sequence[Value], line: int) -> None:
        """List what of a program's own words looks like settings, or sets them by its own rules."""
        texts = [word.text for word in words]
        module = texts[texts.index("-m") + 1] if "-m" in texts[:-1] else ""
        if name in _LAUNCHERS or module in _LAUNCHERS:
            self._note(line, name if name in _LAUNCHERS else module, Gap.LAUNCHER)
        for text in texts:
            for setting in settings_in(text):
                self._note(line, setting, Gap.TEXT)
        if placed := _PLACED.search(" ".join(texts)):
            self._note(line, f"{name} ... {placed[1] or placed[2]}", Gap.PROGRAM)

    def _unwrapped(self, wrapper: _Wrapper, words: list[Value], line: int) -> list[Value]:
        options, left = _options(words, valued=wrapper.valued.split())
        for option, value in options:
            if option in ("S", "split-string") and value is not None:
                left = [*(Value(text) for text in value.text.split()), *left]
        while wrapper.sets and left:
            if self._set(left[0], line):
                left = left[1:]
            elif left[0].gap is not None:
                self._note(line, left[0].text, Gap.WORDS)
                left = left[1:]
            else:
                break
        return left[wrapper.n_words :]

    def _taskset(self, words: list[Value], line: int) -> list[Value]:
        """Read taskset -c LIST PROGRAM, or MASK PROGRAM."""
        options, left = _options(words, valued=())
        names = {name for name, _ in options}
        if not left or names & {"p", "pid"}:
            return []
        given = left[0]
        is_mask = not names & {"c", "cpu-list"}
        if is_mask and given.gap is None and re.fullmatch(r"(0x)?[0-9a-fA-F]{1,64}", given.text):
            mask = int(given.text, 16)
            cpus = [str(i) for i in range(mask.bit_length()) if mask >> i & 1]
            given = Value(",".join(cpus))
        self._launched.place(given, line, "taskset")
        return left[1:]

    def _numactl(self, words: list[Value], line: int) -> list[Value]:
        of_nodes = _NODE_OPTIONS.split()
        options, left = _options(words, valued=(*_CPU_OPTIONS, *of_nodes))
        for name, value in options:
            if value is not None and name in _CPU_OPTIONS:
                self._launched.place(value, line, "numactl")
            elif value is not None and name in of_nodes:
                self._launched.place(value, line, "numactl", is_nodes=True)
            elif name not in _NUMACTL_FLAGS.split():
                self._note(line, f"numactl {_written(name)}", Gap.PROGRAM)
        return left

    def _systemd_run(self, words: list[Value], line: int) -> list[Value]:
        """Read properties of a transient unit."""
        from tuner.deploy.unit import take_property  # units hold commands

        valued = "u unit p property E setenv H host M machine slice description uid gid nice " \
                 "working-directory on-active on-boot timer-property service-type"  # fmt: skip
        options, left = _options(words, valued=valued.split())
        for name, value in options:
            if value is not None and name in ("E", "setenv"):
                self._set(value, line)
            elif value is not None and name in ("p", "property"):
                key, _, text = value.text.partition("=")
                take_property(self._launched, key, value._replace(text=text), line)
        return left

    def _mpi(self, words: list[Value], line: int) -> list[Value]:
        """Read -x NAME=VALUE; go on at what binds or wraps the program, wherever that stands."""
        for i, word in enumerate(words):
            is_set = i > 0 and words[i - 1].text in _MPI_SETS
            inside = re.match(r"-(?:x|genv|env)(?==?[A-Za-z_]+=)=?", word.text)
            if inside:
                self._set(word._replace(text=word.text[inside.end() :]), line)
            elif is_set and not self._set(word, line) and i + 1 < len(words):
                self._set(words[i + 1]._replace(text=f"{word.text}={words[i + 1].text}"), line)
        names = [word.text.rpartition("/")[2] for word in words]
        known = {"taskset", "numactl", *_WRAPPERS, *_SHELLS}
        at = next((i for i, name in enumerate(names) if name in known), len(words))
        return words[at:]

    def _shell(self, words: list[Value], line: int) -> None:
        """Read sh -c CODE; list sh FILE."""
        options, left = _options(words, valued=("o", "O", "rcfile", "init-file"))
        if left and any(name == "c" for name, _ in options):
            self._run_code(left[0], line)
        elif left:
            self._note(line, left[0].text, Gap.ELSEWHERE)

    def _engine(self, name: str, words: list[Value], line: int) -> None:
        """Read docker run: a container of its own, and the command in it."""
        flags = _DOCKER_FLAGS.split()
        _, left = _options(words, flags=flags)
        while left and left[0].text in ("container", "run", "create", "exec"):
            verb = left.pop(0).text
            if verb == "container":
                continue
            options, left = _options(left, flags=flags)
            unknown = []
            while left and left[0].gap is not None:  # docker run $OPTIONS image
                unknown.append(left.pop(0))
                more, left = _options(left, flags=flags)
                options += more
            titles = [value.text for key, value in options if key == "name" and value]
            image = left[0].text if left else ""
            inside = Launched(titles[0] if titles else image or name, Scope.CONTAINER)
            self._file.launched.append(inside)
            for word in unknown:
                inside.note(line, word.text, Gap.WORDS, self._name)
            for option, value in options:
                if value is not None:
                    self._option(inside, option, value, line)
            command = Commands(self._file, inside, self._folder)
            command.begin(self._is_certain, self._name)
            command.read(left[1:], line)
            return

    def _option(self, inside: Launched, option: str, value: Value, line: int) -> None:
        written = _written(option)
        if option in ("e", "env"):
            if not self._set(value, line, inside) and settings_in(f"{value.text}="):
                inside.note(line, value.text, Gap.NOT_SET_HERE, self._name)
        elif option == "env-file":
            read_env(value, line, inside, self._folder)
        elif option == "cpus":
            inside.limit_cpus(value, line, f"{written} ")
        elif option == "cpu-quota" and value.text.isdecimal():
            inside.limit_cpus(
                Value(f"{int(value.text) / 100_000:g}"), line, f"{written} / 100000 = "
            )
        elif option == "cpuset-cpus":
            inside.place(value, line, written)
        elif option == "cpuset-mems":
            inside.place(value, line, written, is_nodes=True)
        elif option in ("m", "memory"):
            inside.limit_memory(value, line, f"{written} ")


def _may_be_script(program: str) -> bool:
    """Tell whether a program is a file of its own, and not one of a folder of programs."""
    path = Path(program)
    is_path = program.startswith(("/", "./", "../", "~/")) and path.name != ""
    return path.suffix == ".sh" or (is_path and path.parent.name not in _BINARIES)


def _written(option: str) -> str:
    return f"--{option}" if len(option) > 1 else f"-{option}"


def _options(
    words: Sequence[Value], *, valued: Collection[str] = (), flags: Collection[str] | None = None
) -> tuple[list[tuple[str, Value | None]], list[Value]]:
    """Separate a program's options, with their values, from the words that follow them.

    valued: those that take a value. flags: instead of it, those that take none.
    """

    def takes(name: str) -> bool:
        return name in valued if flags is None else name not in flags

    return _parted(list(words), takes)


def _parted(
    words: list[Value], takes: Callable[[str], bool]
) -> tuple[list[tuple[str, Value | None]], list[Value]]:
    found: list[tuple[str, Value | None]] = []
    while words and words[0].text.startswith("-") and words[0].text != "-":
        word = words.pop(0)
        if word.text == "--":
            break
        for name, text in _names(word.text, takes):
            value = None if text is None else word._replace(text=text)
            if value is None and takes(name) and words:
                value = words.pop(0)
            found.append((name, value))
    return found, words


def _names(text: str, takes: Callable[[str], bool]) -> Iterator[tuple[str, str | None]]:
    """Yield the options of one word: --name=value, -n, -nvalue, -abc."""
    if text.startswith("--"):
        name, equals, value = text[2:].partition("=")
        yield name, value if equals else None
        return
    letters, equals, rest = text[1:].partition("=")
    if not takes(letters):  # a known flag, such as -it
        for i, letter in enumerate(letters):
            if takes(letter) and i + 1 < len(letters):
                yield letter, letters[i + 1 :] + equals + rest
                return
            yield letter, None
        return
    if len(letters) > 1:  # -eNAME=VALUE
        yield letters[0], letters[1:] + equals + rest
    else:
        yield letters, rest if equals else None
