"""Docker Compose's own reading of docker-compose.yml, and ours of the Dockerfile."""

import json
import os
import pathlib
import re
import subprocess


class Refused(Exception):
    """Compose does not take the file."""


def model(compose, root, profiles=(), **variables):
    """What `docker compose config` makes of the file. Neither the caller's environment nor a file .env is seen."""
    flags = [flag for profile in profiles for flag in ("--profile", profile)]
    run = subprocess.run(
        [os.path.abspath(compose), "--env-file", "/dev/null", *flags, "config", "--format", "json"],
        cwd=root,
        env={"PATH": os.environ["PATH"], "HOME": "/home/nobody", **variables},
        capture_output=True,
        text=True,
        timeout=60,
    )
    # A warning, such as one about a variable without a default, is a fault as well.
    if run.returncode or run.stderr:
        raise Refused(run.stderr.strip() or f"exit status {run.returncode}")
    return json.loads(run.stdout)


def dockerfile(root):
    """The Dockerfile's stages in order: a list of (name, base, [(instruction, rest), …])."""
    text = (pathlib.Path(root) / "Dockerfile").read_text()
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    stages = []
    for line in re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines():
        instruction, rest = line.split(None, 1)
        if instruction == "FROM":
            base, _, name = rest.partition(" AS ")
            stages.append((name, base, []))
        else:
            stages[-1][2].append((instruction, rest))
    return stages


def health_check(stage):
    """The command of a stage's HEALTHCHECK, as a list."""
    (rest,) = [rest for instruction, rest in stage[2] if instruction == "HEALTHCHECK"]
    return json.loads(rest.partition("CMD ")[2])
