"""What `bench handover` measures: one pair of processes, and what each of them writes down. No device, no process."""

from dataclasses import dataclass, field

WIDTH = 3584
BF16_BYTES = 2
MOST_ROWS = 64
WAIT_S = 60.0
NO_DEVICE = -1


@dataclass(frozen=True)
class Job:
    """What one pair of processes does; `devices` are the writer's and the reader's, NO_DEVICE for host arrays."""

    way: str
    devices: tuple[int, int]
    address: str
    rows: tuple[int, ...]
    steps: int
    warm_steps: int
    period_s: float

    @property
    def spins(self) -> bool:
        """Whether the reader looks without pause."""
        return self.way.endswith(("-spin", "-ahead"))

    @property
    def kind(self) -> str:
        """The way without how the reader waits."""
        return self.way.removesuffix("-spin")


@dataclass
class Stamps:
    """Instants by step, and what it took of the CPU per step, of one side for one number of rows."""

    first_ns: list[int] = field(default_factory=list[int])  # writer: rows are ready; reader: block is in hand
    second_ns: list[int] = field(default_factory=list[int])  # writer: event recorded; reader: kernel is done
    device_ns: list[int] = field(
        default_factory=list[int]
    )  # on the device: before the event; the kernel begins
    cpu_us: float = 0.0


def value_of(step: int) -> int:
    """What every number of a step's block is: exact in bf16."""
    return 1 + step % 120
