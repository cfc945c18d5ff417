"""vLLM's API server with Jumar's defaults, checks and banner. Started by serving.server."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from serving import banner, default_model, preflight, supervisor
from serving.tracebacks import UserError, explain

if TYPE_CHECKING:
    from vllm.engine.protocol import EngineClient
    from vllm.utils.argparse_utils import FlexibleArgumentParser

# vLLM's own default listens on every interface.
DEFAULT_HOST = "127.0.0.1"

HELP = """./bazelw run //serving:server -- --port 8001 --max-model-len 2048

Serves a model over the OpenAI API. Without --model: {name}, which the build embeds, at http://127.0.0.1:8000.
The flags are those of `vllm serve`; --help=all lists them, --help=KEYWORD searches them.
"""


def make_parser() -> FlexibleArgumentParser:
    """vLLM's own parser with Jumar's defaults."""
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    class Parser(FlexibleArgumentParser):
        def error(self, message: str) -> NoReturn:
            raise preflight.PreflightError(f"{message}; see --help")

        def format_help(self) -> str:
            return super().format_help().removeprefix("usage: ")  # the first line can be pasted

    parser = make_arg_parser(Parser(prog="//serving:server", usage=HELP.format(name=default_model.NAME)))
    parser.set_defaults(model=None, host=DEFAULT_HOST)
    return parser


def parse(argv: list[str]) -> Namespace:
    args = make_parser().parse_args(argv)
    args.model = args.model_tag or args.model
    if args.model is None:
        folder = default_model.folder()
        if folder is None:
            raise preflight.PreflightError("there is no embedded model outside of Bazel: give one with --model")
        args.model = str(folder)
        args.served_model_name = args.served_model_name or [default_model.NAME]
    args.model_tag = args.model
    if Path(args.model).is_dir():
        # Nothing is fetched for a model that is here; the engine's process reads this at its start.
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
    return args


def check(args: Namespace) -> None:
    """Raises UserError for what can't be served."""
    if not args.uds and not args.headless and args.port != 0:
        preflight.check_port(args.host, args.port)
    request = preflight.Request(
        model=args.model,
        tokenizer=args.tokenizer,
        skip_tokenizer=args.skip_tokenizer_init,
        dtype=args.dtype,
        load_format=args.load_format,
        max_model_len=args.max_model_len,
        block_size=args.block_size,
        kv_cache_dtype=args.kv_cache_dtype,
        memory_utilization=args.gpu_memory_utilization,
        ranks=args.tensor_parallel_size * args.pipeline_parallel_size,
        trust_remote_code=args.trust_remote_code,
    )
    preflight.check(request, preflight.known_architectures, preflight.device_memory)


def check_early(argv: list[str]) -> None:
    """What needs no vLLM, whose import takes seconds: the port and the model's files, if plain flags name them."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for name in ("--model", "--tokenizer", "--uds", "--config"):
        parser.add_argument(name)
    parser.add_argument("--host", default=DEFAULT_HOST)
    parser.add_argument("--port", default="8000")
    parser.add_argument("--load-format", "--load_format", default="auto")
    parser.add_argument("--skip-tokenizer-init", "--skip_tokenizer_init", action="store_true")
    parser.add_argument("--headless", action="store_true")
    args, _ = parser.parse_known_args(argv)
    if args.config or args.headless or any(arg.startswith(("-h", "--help")) for arg in argv):
        return
    if not args.uds and args.port.isdecimal() and args.port != "0":
        preflight.check_port(args.host, int(args.port))
    if args.model:
        preflight.check_files(
            preflight.Request(args.model, args.tokenizer, args.skip_tokenizer_init, load_format=args.load_format)
        )


def is_single_server(args: Namespace) -> bool:
    """Whether one API server does it, for one engine or for data-parallel ones; vLLM's launcher starts the rest."""
    several = args.api_server_count not in (None, 1)
    return not (several or args.headless or args.grpc or args.data_parallel_rank is not None)


async def serve(args: Namespace, started: float) -> None:
    """vLLM's run_server, with a banner when it is ready."""
    from vllm.entrypoints.launchers.api_server.entry import build_and_serve, build_async_engine_client
    from vllm.entrypoints.launchers.launcher import setup_server
    from vllm.utils.system_utils import decorate_logs

    decorate_logs("APIServer", skip_if_decorated=True)
    signal.signal(signal.SIGTERM, _interrupt)  # until the HTTP server installs its own
    address, sock = setup_server(args, reuse_port=False)
    if not args.uds:
        args.port = sock.getsockname()[1]  # --port 0 takes a free one
    async with build_async_engine_client(args) as engine:
        announcing = asyncio.create_task(_announce(engine, args, started))
        try:
            shutdown = await build_and_serve(engine, address, sock, args)
        finally:
            announcing.cancel()
        if engine.errored:
            raise RuntimeError("the engine ended while it served; what it said last stands above")
    try:
        await shutdown
    finally:
        sock.close()


def _interrupt(*_: Any) -> NoReturn:
    raise KeyboardInterrupt


async def _announce(engine: EngineClient, args: Namespace, started: float) -> None:
    """Prints the banner as soon as a client can connect."""
    (device,) = (await engine.collective_rpc("describe_device"))[:1]
    while True:
        try:
            if args.uds:
                _, writer = await asyncio.open_unix_connection(args.uds)
            else:
                _, writer = await asyncio.open_connection(banner.client_host(args.host), args.port)
            writer.close()
            break
        except OSError:
            await asyncio.sleep(0.05)
    print(banner.text(args, engine.vllm_config, device, time.monotonic() - started), flush=True)
    supervisor.tell(ready=True)


def run(argv: list[str], started: float) -> None:
    with contextlib.suppress(argparse.ArgumentError):  # what it refuses, vLLM's parser explains
        check_early(argv)
    print("jumar: loading vLLM and torch_npu ...", file=sys.stderr)
    from vllm.entrypoints.serve.utils.api_utils import cli_env_setup

    cli_env_setup()
    args = parse(argv)
    check(args)
    print(f"jumar: starting the engine with {args.model} ...", file=sys.stderr)

    import uvloop
    from vllm.entrypoints.cli.serve import ServeSubcommand
    from vllm.entrypoints.launchers.cli_args import validate_parsed_serve_args
    from vllm.logger import configure_logging_from_args

    configure_logging_from_args(args)
    validate_parsed_serve_args(args)
    if not supervisor.shows_tracebacks():
        # 40 lines of routes, which /docs lists better.
        logging.getLogger("vllm.entrypoints.launchers.launcher").setLevel(logging.WARNING)
    if is_single_server(args):
        uvloop.run(serve(args, started))
    else:
        supervisor.tell(ready=True)
        ServeSubcommand.cmd(args)


def main(argv: list[str]) -> int:
    started = time.monotonic()
    supervisor.keep_status_private()
    try:
        run(argv, started)
    except KeyboardInterrupt:
        return 0
    except Exception as error:
        user_error = isinstance(error, UserError)
        if not user_error and supervisor.shows_tracebacks():
            raise
        # vLLM raises this when a process of its own printed the reason and ended.
        engine_failed = "See root cause above" in str(error)
        if not supervisor.tell(error=explain(error), engine_failed=engine_failed):
            print(f"jumar: error: {explain(error)}", file=sys.stderr)
        return 2 if user_error else 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
