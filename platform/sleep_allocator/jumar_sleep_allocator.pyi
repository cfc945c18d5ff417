MALLOC: str  # the names of this module's C functions, for torch.npu.memory.NPUPluggableAllocator
FREE: str

class TagStats:
    """The memory of one tag, in bytes."""

    @property
    def tag(self) -> str: ...
    @property
    def num_allocations(self) -> int: ...
    @property
    def num_asleep(self) -> int: ...
    @property
    def size_bytes(self) -> int:
        """Addresses, awake or not."""
    @property
    def device_bytes(self) -> int:
        """Device memory in use."""
    @property
    def host_bytes(self) -> int:
        """Copies on the host."""

def set_tag(tag: str) -> str:
    """Tags what this thread allocates from now on. Returns the tag before."""

def sleep(device: int, offload: list[str]) -> None:
    """Copies the tags ``offload`` to the host, drops the others, and returns the device's memory.

    Raises:
        MemoryError: the host has no room for the copies; everything is awake.
    """

def discard(device: int, tags: list[str]) -> None:
    """Drops these tags and returns their memory."""

def wake(device: int, tags: list[str]) -> None:
    """Brings these tags back to their addresses, all if there are none.

    Raises:
        MemoryError: the device has no room; nothing is lost, and the call can be repeated.
        RuntimeError: nothing of these tags sleeps.
    """

def stats(device: int) -> list[TagStats]:
    """The tags in use."""
