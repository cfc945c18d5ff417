"""Number formats of each chip, from libs/tiling/hardware_table.h, which names the sources.

Made by `./bazelw run //platform:chip_formats`; a test holds it against the table.
"""

# What people call a chip's kin.
FAMILIES = {
    "Ascend910B1": "Ascend910B",
    "Ascend910B2": "Ascend910B",
    "Ascend910B2C": "Ascend910B",
    "Ascend910B3": "Ascend910B",
    "Ascend910B4": "Ascend910B",
    "Ascend910B4-1": "Ascend910B",
    "Ascend910_9391": "Ascend910_93",
    "Ascend910_9392": "Ascend910_93",
    "Ascend910_9381": "Ascend910_93",
    "Ascend910_9382": "Ascend910_93",
    "Ascend910_9372": "Ascend910_93",
    "Ascend910_9362": "Ascend910_93",
    "Ascend910_9363": "Ascend910_93",
    "Ascend950PR": "Ascend950",
    "Ascend950DT": "Ascend950",
    "Ascend310P1": "Ascend310P",
    "Ascend310P2": "Ascend310P",
    "Ascend310P3": "Ascend310P",
    "Ascend310P4": "Ascend310P",
    "Ascend310P5": "Ascend310P",
    "Ascend310P7": "Ascend310P",
}

# What its cube or vector unit computes with.
COMPUTES = {
    "Ascend910B1": ("fp32", "fp16", "bf16", "int8", "int4"),
    "Ascend910B2": ("fp32", "fp16", "bf16", "int8", "int4"),
    "Ascend910B2C": ("fp32", "fp16", "bf16", "int8", "int4"),
    "Ascend910B3": ("fp32", "fp16", "bf16", "int8", "int4"),
    "Ascend910B4": ("fp32", "fp16", "bf16", "int8", "int4"),
    "Ascend910B4-1": ("fp32", "fp16", "bf16", "int8", "int4"),
    "Ascend910_9391": ("fp32", "fp16", "bf16", "int8", "int4"),
    "Ascend910_9392": ("fp32", "fp16", "bf16", "int8", "int4"),
    "Ascend910_9381": ("fp32", "fp16", "bf16", "int8", "int4"),
    "Ascend910_9382": ("fp32", "fp16", "bf16", "int8", "int4"),
    "Ascend910_9372": ("fp32", "fp16", "bf16", "int8", "int4"),
    "Ascend910_9362": ("fp32", "fp16", "bf16", "int8", "int4"),
    "Ascend910_9363": ("fp32", "fp16", "bf16", "int8", "int4"),
    "Ascend950PR": ("fp32", "fp16", "bf16", "int8", "fp8", "hif8", "mxfp8", "mxfp4"),
    "Ascend950DT": ("fp32", "fp16", "bf16", "int8", "fp8", "hif8", "mxfp8", "mxfp4"),
    "Ascend310P1": ("fp32", "fp16", "int8"),
    "Ascend310P2": ("fp32", "fp16", "int8"),
    "Ascend310P3": ("fp32", "fp16", "int8"),
    "Ascend310P4": ("fp32", "fp16", "int8"),
    "Ascend310P5": ("fp32", "fp16", "int8"),
    "Ascend310P7": ("fp32", "fp16", "int8"),
}

# What a weight may be that is multiplied with 16-bit rows.
WEIGHTS = {
    "Ascend910B1": ("int8", "int4"),
    "Ascend910B2": ("int8", "int4"),
    "Ascend910B2C": ("int8", "int4"),
    "Ascend910B3": ("int8", "int4"),
    "Ascend910B4": ("int8", "int4"),
    "Ascend910B4-1": ("int8", "int4"),
    "Ascend910_9391": ("int8", "int4"),
    "Ascend910_9392": ("int8", "int4"),
    "Ascend910_9381": ("int8", "int4"),
    "Ascend910_9382": ("int8", "int4"),
    "Ascend910_9372": ("int8", "int4"),
    "Ascend910_9362": ("int8", "int4"),
    "Ascend910_9363": ("int8", "int4"),
    "Ascend950PR": ("int8", "int4", "fp8", "hif8", "mxfp4"),
    "Ascend950DT": ("int8", "int4", "fp8", "hif8", "mxfp4"),
    "Ascend310P1": ("int8",),
    "Ascend310P2": ("int8",),
    "Ascend310P3": ("int8",),
    "Ascend310P4": ("int8",),
    "Ascend310P5": ("int8",),
    "Ascend310P7": ("int8",),
}
