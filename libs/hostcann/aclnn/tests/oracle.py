"""What the operator tests share: running a function on the CPU and on the device, and comparing.

A test says by `@covers("Add", "Adds")` which operators of libopapi.so it calls. That is checked: each must have been
launched while the test ran. coverage_test.py adds up all tests and asks for every operator of the library.
"""

import ctypes
import functools
import math
import os
import re

import torch
import torch_npu  # noqa: F401  (registers the device)

torch.npu.config.allow_internal_format = True  # or npu_format_cast does nothing

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
INTS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
STRICT = os.environ.get("JUMAR_STRICT") == "1"
COVERED: set[str] = set()
TESTS_OF: dict[str, list[str]] = {}  # operator: the tests that cover it, such as "fused_test.test_matmul"

# Smallest relative distance of two neighbours, and the smallest subnormal.
EPS = {torch.float64: 2.0**-52, torch.float32: 2.0**-23, torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}
TINY = {torch.float64: 2.0**-1074, torch.float32: 2.0**-149, torch.float16: 2.0**-24, torch.bfloat16: 2.0**-133}


@functools.cache
def opapi():
    torch.zeros(1, device="npu")  # torch_npu opens the library at its first operator
    library = ctypes.CDLL("libopapi.so")
    library.JumarAclnnOperators.restype = ctypes.c_char_p
    library.JumarAclnnNearNames.restype = ctypes.c_char_p
    library.JumarAclnnLaunches.restype = ctypes.c_int64
    return library


def launches(name: str) -> int:
    return opapi().JumarAclnnLaunches(f"aclnn{name}".encode())


ACL_DTYPES = {
    torch.float32: 0, torch.float16: 1, torch.int8: 2, torch.int32: 3, torch.uint8: 4, torch.int16: 6, torch.int64: 9, torch.float64: 11,
    torch.bool: 12, torch.bfloat16: 27,
}


def call(name: str, *arguments, tensors=None):
    """Calls aclnn<name> itself, for operators that torch_npu reaches in no other way on this SoC.

    A tensor (on the device) becomes an aclTensor, (tensor, format[, shape of the storage]) one of that format, an int an int64_t, a float a double, None
    a null pointer; anything else is passed as it is. Raises RuntimeError with the library's message.
    """
    library = opapi()
    library.aclCreateTensor.restype = library.aclCreateIntArray.restype = ctypes.c_void_p
    runtime = ctypes.CDLL("libascendcl.so")
    runtime.aclGetRecentErrMsg.restype = ctypes.c_char_p

    def convert(value, format=2, storage=None):
        if isinstance(value, tuple):
            return convert(*value)
        if isinstance(value, torch.Tensor):
            array = lambda v: ((ctypes.c_int64 * len(v))(*v), ctypes.c_uint64(len(v)))  # noqa: E731
            dims, rank = array(value.shape)
            return ctypes.c_void_p(
                library.aclCreateTensor(dims, rank, ACL_DTYPES[value.dtype], array(value.stride())[0], ctypes.c_int64(0), format,
                                        *array(storage or value.shape), ctypes.c_void_p(value.data_ptr()))
            )
        if value is None:
            return ctypes.c_void_p()
        if isinstance(value, bool):
            return ctypes.c_bool(value)
        if isinstance(value, int):
            return ctypes.c_int64(value)
        if isinstance(value, float):
            return ctypes.c_double(value)
        return value

    torch.npu.synchronize()
    converted = [convert(a) for a in arguments]
    size, executor = ctypes.c_uint64(), ctypes.c_void_p()
    code = getattr(library, f"aclnn{name}GetWorkspaceSize")(*converted, ctypes.byref(size), ctypes.byref(executor))
    if code == 0:
        code = getattr(library, f"aclnn{name}")(None, size, executor, ctypes.c_void_p(torch.npu.current_stream().npu_stream))
    message = runtime.aclGetRecentErrMsg() if code != 0 else b""
    torch.npu.synchronize()  # the operator may yet write the shape of an output
    for original, made in zip(arguments, converted):
        if isinstance(original, (torch.Tensor, tuple)):
            library.aclDestroyTensor(made)
    if code != 0:
        raise RuntimeError(f"{code}: {message.decode()}")


def covers(*names: str):
    """Decorates a test that calls these operators; one that runs once for each parameter need call each only once."""
    COVERED.update(names)

    def decorate(test):
        for name in names:
            TESTS_OF.setdefault(name, []).append(f"{test.__module__}.{test.__name__}")

        @functools.wraps(test)
        def run(*args, **kwargs):
            before = {name: launches(name) for name in names}
            assert all(count >= 0 for count in before.values()), f"not in libopapi.so: {[n for n in names if before[n] < 0]}"
            test(*args, **kwargs)
            idle = [name for name in names if launches(name) == before[name]]
            assert not idle, f"the test didn't launch {idle}"

        return run

    return decorate


def strict_refuses(message: str, when=lambda **_: True):
    """Decorates a test of something that CANN's public pages exclude: in strict mode it must be refused with a message like this.

    `when` gets the test's arguments and tells if the exclusion concerns it.
    """

    def decorate(test):
        @functools.wraps(test)
        def run(**arguments):
            if not (STRICT and when(**arguments)):
                return test(**arguments)
            try:
                test(**arguments)
            except RuntimeError as error:
                assert re.search(message, str(error)), f"{error}\nis not like {message!r}"
            else:
                raise AssertionError(f"strict mode did not refuse: {message}")

        return run

    return decorate


def to_device(value):
    """Copies tensors (in lists and tuples, too) to the device, strides included."""
    if isinstance(value, torch.Tensor):
        if value.numel() == 0 or value.is_contiguous():
            return value.to("npu")
        extent = 1 + sum((size - 1) * stride for size, stride in zip(value.shape, value.stride()))
        dense = value.as_strided((extent,), (1,), value.storage_offset())
        return dense.clone().to("npu").as_strided(value.shape, value.stride())
    if isinstance(value, (list, tuple)):
        return type(value)(to_device(v) for v in value)
    return value


def results(value) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value.cpu()]
    return [t.cpu() for t in value]


def same(function, *arguments):
    """function(*arguments) gives the same bits on the device as on the CPU: the same ATen kernel runs."""
    want = results(function(*[a.clone() if isinstance(a, torch.Tensor) and a.is_contiguous() else a for a in arguments]))
    got = results(function(*to_device(list(arguments))))
    assert len(got) == len(want)
    for g, w in zip(got, want):
        assert g.dtype == w.dtype and g.shape == w.shape, f"got {g.dtype} {tuple(g.shape)}, want {w.dtype} {tuple(w.shape)}"
        assert torch.equal(torch.isnan(g), torch.isnan(w)) if g.is_floating_point() else True
        assert torch.equal(torch.nan_to_num(g), torch.nan_to_num(w)) if g.is_floating_point() else torch.equal(g, w), f"got {g}\nwant {w}"


def near(function, *arguments, ulps=1.0, dtype=None):
    """function on the device is within `ulps` units in the last place of its float64 value on the CPU."""
    wide = [a.double() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in arguments]
    close(results(function(*to_device(list(arguments)))), results(function(*wide)), ulps=ulps, dtype=dtype)


def close(got, want, *, ulps=1.0, absolute=0.0, dtype=None):
    """|got - want| <= ulps * eps(dtype) * |want| + absolute, want in float64; NaN and infinities in the same places."""
    got = [got] if isinstance(got, torch.Tensor) else got
    want = [want] if isinstance(want, torch.Tensor) else want
    assert len(got) == len(want)
    for g, w in zip(got, want):
        assert g.shape == w.shape, f"got shape {tuple(g.shape)}, want {tuple(w.shape)}"
        if not g.is_floating_point():
            assert torch.equal(g, w.to(g.dtype)), f"got {g}\nwant {w}"
            continue
        kind = dtype or g.dtype
        w = w.double()
        overflow = w.abs() > torch.finfo(kind).max
        w = torch.where(overflow, w.sign() * math.inf, w)
        g = g.double()
        assert torch.equal(g.isnan(), w.isnan()), "NaN in other places"
        finite = w.isfinite()
        edge = w.abs() > torch.finfo(kind).max * (1 - EPS[kind])  # may round either way
        assert torch.equal(g[~finite & ~edge & ~w.isnan()], w[~finite & ~edge & ~w.isnan()]), "infinities in other places"
        keep = finite & ~edge
        bound = ulps * EPS[kind] * w[keep].abs() + TINY[kind] + (absolute[keep] if isinstance(absolute, torch.Tensor) else absolute)
        error = (g[keep] - w[keep]).abs()
        if error.numel() and bool((error > bound).any()):
            worst = int((error - bound).argmax())
            raise AssertionError(
                f"{int((error > bound).sum())} of {error.numel()} off; worst: got {g[keep][worst].item()!r}, want {w[keep][worst].item()!r}, "
                f"error {error[worst].item():.3g}, bound {bound[worst].item():.3g} ({kind})"
            )


def floats(*shape, dtype=torch.float32, seed=0, low=-3.0, high=3.0):
    generator = torch.Generator().manual_seed(seed)
    return (torch.rand(shape, generator=generator) * (high - low) + low).to(dtype)


def ints(*shape, dtype=torch.int64, seed=0, low=-20, high=20):
    generator = torch.Generator().manual_seed(seed)
    low = 0 if dtype in (torch.uint8, torch.bool) else low
    return torch.randint(low, high, shape, generator=generator).to(dtype)


def bools(*shape, seed=0):
    return ints(*shape, seed=seed, low=0, high=2) > 0


def layouts(make):
    """The shapes that every pointwise operator is tried with: vector, odd matrix, scalar, empty, strided views."""
    yield make(7)
    yield make(33, 65)
    yield make()
    yield make(0, 4)
    yield make(6, 10).t()
    yield make(4, 9)[:, ::2]
    yield make(2, 3, 1, 5).expand(2, 3, 4, 5)
