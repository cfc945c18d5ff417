"""The pin table: which releases belong together. Everything else reads it from here.

Python reads the same table as the generated module third_party.cann.versions (//third_party/cann:versions).
Updating a row is described in CONTRIBUTING.md, "Update a pin".
"""

# CANN release -> what runs on it.
CANN_RELEASES = {
    "9.1.0": {
        "torch": "2.13.0",
        "torch_npu": "2.13.0",
        "vllm": "0.32.0",
        "python": "3.11",
        # Names as aclrtGetSocName gives them, by the platform that kernels are compiled for.
        "socs": {
            "ascend910b": ["Ascend910B1", "Ascend910B2", "Ascend910B2C", "Ascend910B3", "Ascend910B4", "Ascend910B4-1"],
            "ascend910_93": ["Ascend910_9362", "Ascend910_9372", "Ascend910_9381", "Ascend910_9382", "Ascend910_9391", "Ascend910_9392"],
            "ascend310p": ["Ascend310P1", "Ascend310P3", "Ascend310P5", "Ascend310P7"],
        },
    },
}

# The release that this revision is built for, and that hostcann says it is.
CANN_VERSION = "9.1.0"
