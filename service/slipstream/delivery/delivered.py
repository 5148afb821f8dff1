"""The result of a delivery."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Delivered:
    """Result of one call of `Committer.commit`.

    Attributes:
        commit: the commit's number, or None when there was nothing to deliver.
        groups, experiences: delivered now.
        run_again: groups that the Explorer had lost, and that are run again.
        lost: groups of clients that the Explorer had lost.
    """

    commit: int | None = None
    groups: int = 0
    experiences: int = 0
    run_again: int = 0
    lost: int = 0

    def after(self, earlier: Delivered) -> Delivered:
        """This one, together with an earlier one that was ended by the same call."""
        return Delivered(
            self.commit if self.commit is not None else earlier.commit,
            self.groups + earlier.groups,
            self.experiences + earlier.experiences,
            self.run_again + earlier.run_again,
            self.lost + earlier.lost,
        )

    def as_dict(self) -> dict[str, int | None]:
        return asdict(self)
