"""Serves a model over the OpenAI API: `./bazelw run //serving:server`. Every flag of `vllm serve` works.

This process only watches (serving.supervisor); the work is done by serving.api_server, its child.
"""

from __future__ import annotations

import os
import sys

from serving import preflight, supervisor

NAME = "jumar"

# A loopback server for one's own use tells nobody that it runs.
ENVIRONMENT_DEFAULTS = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "TOKENIZERS_PARALLELISM": "false"}


def main(argv: list[str]) -> int:
    os.chdir(os.environ.get("BUILD_WORKING_DIRECTORY", "."))  # `bazel run` starts programs elsewhere
    try:
        preflight.check_python()
    except preflight.PreflightError as error:
        print(f"{NAME}: error: {error}", file=sys.stderr)
        return 2
    # The options that Bazel's launcher gives its interpreter: neither the script's folder nor the user's packages.
    options = ["-P"] * sys.flags.safe_path + ["-s"] * sys.flags.no_user_site
    command = [sys.executable, *options, "-m", "serving.api_server", *argv]
    return supervisor.run(command, NAME, {**ENVIRONMENT_DEFAULTS, **os.environ})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
