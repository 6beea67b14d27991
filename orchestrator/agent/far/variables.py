"""A training's environment variables, so that two runs can be compared and no secret can be read.

Rule: a value is kept as it is only when it is known to change what a training does and cannot be a secret. Of all
others a keyed hash is kept: equal values have equal ones, and nobody without the key, which stays on the target, can
try values.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import re
from typing import Any, Dict, List

from .records import contract

KEY = "identity.key"
KEY_BYTES = 32
SHOWN = re.compile(
    r"(TORCH|TRITON|CUDA|NVIDIA_|NCCL|PYTORCH|OMP_|MKL_|OPENBLAS_|KMP_|GOMP_|PYTHON|LD_|HF_|TRANSFORMERS_|TOKENIZERS_"
    r"|XLA_|CUBLAS|CUDNN|TF32|GLOO_|UCX_|MALLOC_|ORCH_).*|PATH|HOME|USER|LOGNAME|LANG|LC_.*|TMPDIR|TEMP|TMP|TZ|VIRTUAL_ENV"
)
"""Variables whose values are kept: they change what a training does."""
SECRET = re.compile(
    r"TOKEN|KEY|SECRET|PASS|CREDENTIAL|AUTH|COOKIE|SESSION|PRIVATE|SIGNATURE|BEARER|LOGIN|PWD|(^|_)PAT($|_)",
    re.IGNORECASE,
)
SECRET_VALUE = re.compile(
    r"://\S*@|://\S*\?|\b(token|secret|password|signature|api[-_]?key)=|\bBearer\b"  # a login, a signed address
    r"|\b(hf_|gh[a-z]_|github_pat_|glpat-|sk-|xox[a-z]-|wandb_v)[A-Za-z0-9_-]{8,}|\b(AKIA|ASIA)[A-Z0-9]{12,}|\beyJ[\w-]{8,}\.",
    re.IGNORECASE,
)
SECRET_OPTION = re.compile(
    r"--?(token|([\w.-]*[-_.])?((api|access|secret|private|auth)[-_]?key|secret|password|passwd|credentials?"
    r"|(access|api|auth|bearer|gh|github|hf|hub|wandb)[-_]?token))",
    re.IGNORECASE,
)
"""Options of a command line whose value is a secret; `--eos-token` and `--max-tokens` are none."""
NOT_SHOWN = "[not shown]"
OF_THE_RUN = (contract.RUN_DIR_VARIABLE, contract.RUN_ID_VARIABLE)
"""They name the run: of no two are they the same."""


def variable_facts(environment: Dict[str, Any], base: str, python: Any = None) -> Dict[str, Any]:
    """{values: {name: value}, hashed: {name: 32 hex digits}, key: which key}. Raises OSError for a key that cannot be
    read or made."""
    told = {name: str(value) for name, value in environment.items() if name not in OF_THE_RUN}
    key = identity_key(base)
    shown = {name: settled(value, base, python) for name, value in told.items() if may_be_shown(name, value)}
    hashed = {name: keyed_hash(key, name, value) for name, value in told.items() if name not in shown}
    return {"values": shown, "hashed": hashed, "key": hashlib.sha256(b"which key" + key).hexdigest()[:16]}


def may_be_shown(name: str, value: str) -> bool:
    return bool(SHOWN.fullmatch(name)) and not may_be_secret(name, value)


def may_be_secret(name: str, value: str) -> bool:
    return bool(SECRET.search(name) or SECRET_VALUE.search(value))


def without_secrets(argv: List[str]) -> List[str]:
    """A command line that somebody typed: what may be a secret in it is left out."""
    told: List[str] = []
    for n, word in enumerate(argv):
        name, equals, _ = word.partition("=")
        is_value = n > 0 and SECRET_OPTION.fullmatch(argv[n - 1]) and not word.startswith("-")
        if is_value or SECRET_VALUE.search(word) or (equals and SECRET_OPTION.fullmatch("--" + name.lstrip("-+"))):
            told.append(name + equals + NOT_SHOWN if equals and re.fullmatch(r"[\w.+-]+", name) else NOT_SHOWN)
        else:
            told.append(word)
    return told


def keyed_hash(key: bytes, name: str, value: str) -> str:
    """The name is in it: that two variables have one value is not told either."""
    text = "%s=%s" % (name, value)
    return hmac.new(key, text.encode("utf-8", "surrogateescape"), hashlib.sha256).hexdigest()[:32]


def identity_key(base: str) -> bytes:
    """Made at the first use, mode 0600, never sent. Raises OSError."""
    path = os.path.join(base, KEY)
    for _ in range(2):
        with contextlib.suppress(FileNotFoundError), open(path, "rb") as stream:
            key = stream.read()
            if len(key) != KEY_BYTES:
                raise OSError("%s is no key: %d bytes" % (path, len(key)))
            return key
        os.makedirs(base, exist_ok=True)
        draft = "%s.%d" % (path, os.getpid())
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as stream:
            stream.write(os.urandom(KEY_BYTES))
            stream.flush()
            os.fsync(stream.fileno())
        try:
            os.link(draft, path)  # fails when another one was faster: theirs is taken
        except FileExistsError:
            pass
        finally:
            os.unlink(draft)
    raise OSError("%s cannot be made" % path)


def settled(text: str, base: str, python: Any = None) -> str:
    """Without the names of this release and this environment, which are facts of their own."""
    text = re.sub(re.escape(base) + r"/releases/[0-9a-f]{64}", "{release}", text)
    text = re.sub(re.escape(base) + r"/envs/[^/:]+", "{environment}", text)
    folder = os.path.dirname(str(python)) if python and os.path.isabs(str(python)) else ""
    if folder:
        text = ":".join("{python}" if part in (folder, settled(folder, base)) else part for part in text.split(":"))
    return text
