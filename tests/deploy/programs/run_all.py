"""Run programs one by one, each in a process of its own that finds its framework imported.

usage: run_all.py FRAMEWORK FOLDER [ENGINE]: PROGRAM.py... of this folder run in FOLDER/PROGRAM,
where their recommended.toml lies; prints {program: [exit code, output]} as JSON. Of an ENGINE, what
it imports is imported as well.
"""

import importlib
import json
import os
import runpy
import sys
import traceback
from pathlib import Path

from tuner.engines import OPENVINO
from tuner.worker.engines.openvino_engine import imported

IMPORTED = {
    "torch": ("torch", "torch.utils.data", "transformers", "transformers.pipelines",
              "transformers.models.bert.modeling_bert", "transformers.models.gpt2.modeling_gpt2"),
    "tensorflow": ("tensorflow", "keras"),
    "torch onnxruntime": ("torch", "torch.export", "onnxruntime", "onnxscript"),
    "tensorflow onnxruntime": ("tensorflow", "keras", "onnxruntime", "onnx"),
    "torch openvino": ("torch", "torch.export"),
    "tensorflow openvino": ("tensorflow", "keras"),
}  # fmt: skip


def run(program: Path, folder: Path) -> list[object]:
    """Run it in a copy of this process; its output goes into a file."""
    output = folder / "output"
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.chdir(folder)
            file = os.open(output, os.O_WRONLY | os.O_CREAT)
            os.dup2(file, 1)
            os.dup2(file, 2)
            runpy.run_path(str(program), run_name="__main__")
            code = 0
        except BaseException:  # noqa: BLE001  # an exit is its outcome as well
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return [os.waitstatus_to_exitcode(status), output.read_text()]


if __name__ == "__main__":
    framework, root, *engine = sys.argv[1:]
    for module in IMPORTED[" ".join([framework, *engine])]:
        importlib.import_module(module)
    if engine == [OPENVINO]:
        imported()
    here = Path(__file__).parent
    print(json.dumps({f.name: run(here / f"{f.name}.py", f) for f in sorted(Path(root).iterdir())}))
