"""Prints a page layout's bytes and draws a page of it.

  ./bazelw run //libs/memory/kv:explain -- gqa --heads 8 --dim 128 --block-size 128
  ./bazelw run //libs/memory/kv:explain -- split584 --block-size 64 --svg split584.svg
"""

from __future__ import annotations

import argparse
import os
import pathlib
import sys

import jumar_kv
import page_picture

MAKERS = {
    "gqa": lambda a: jumar_kv.separate_kv(a.heads, a.dim, a.block_size, a.order, a.element),
    "gqa-joint": lambda a: jumar_kv.joint_kv(a.heads, a.dim, a.block_size, a.order, a.element),
    "mla": lambda a: jumar_kv.mla(a.block_size, a.order, a.element),
    "shared": lambda a: jumar_kv.shared_kv(a.block_size, a.element),
    "packed656": lambda a: jumar_kv.packed656(a.block_size),
    "packed640": lambda a: jumar_kv.packed640(a.block_size),
    "split584": lambda a: jumar_kv.split584(a.block_size),
    "indexer132": lambda a: jumar_kv.indexer_keys(a.block_size),
    "indexer130": lambda a: jumar_kv.indexer_keys(a.block_size, "int8", "fp16"),
    "state-c4": lambda a: jumar_kv.compressor_state(a.block_size),
    "state-c128": lambda a: jumar_kv.compressor_state(a.block_size, coff=1),
    "state-indexer": lambda a: jumar_kv.compressor_state(a.block_size, dim=128),
}


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog="explain", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("layout", nargs="?", default="gqa", choices=MAKERS, metavar="LAYOUT", help=f"{', '.join(MAKERS)}; default gqa")
    p.add_argument("--heads", type=int, default=8, help="KV heads (gqa); default 8")
    p.add_argument("--dim", type=int, default=128, help="elements of a head (gqa); default 128")
    p.add_argument("--block-size", type=int, default=128, help="tokens per page; default 128")
    p.add_argument("--order", default="token", choices=("token", "head", "fractal"),
                   help="gqa and mla: token-major, head-major or NZ; default token")
    p.add_argument("--element", default="bf16", choices=("bytes", "int8", "e4m3", "fp16", "bf16", "fp32"),
                   help="gqa, mla and shared; default bf16")
    p.add_argument("--page-bytes", type=int, help="pad the page to so many bytes, as a group of a hybrid model")
    p.add_argument("--svg", type=pathlib.Path, default=pathlib.Path("page.svg"), help="where the picture goes; default page.svg here")
    return p


def main(arguments: list[str] | None = None) -> int:
    os.chdir(os.environ.get("BUILD_WORKING_DIRECTORY", "."))  # `bazel run` starts programs elsewhere
    a = parser().parse_args(arguments)
    try:
        layout = MAKERS[a.layout](a)
        if a.page_bytes is not None:
            layout = layout.in_pages_of(a.page_bytes)
    except (ValueError, TypeError, OverflowError) as error:  # beyond 64 bits it is one of the latter
        print(f"explain: {error}", file=sys.stderr)
        return 2
    try:
        a.svg.write_text(page_picture.picture(layout), encoding="utf-8")
    except OSError as error:
        print(f"explain: cannot write {a.svg} ({error.strerror}); give another file with --svg", file=sys.stderr)
        return 2
    print(layout, end="")
    print(f"picture: {a.svg}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
