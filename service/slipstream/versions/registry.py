"""The stage that finds new checkpoints, and keeps the newest of them before the Trainer deletes them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import structlog

from slipstream.errors import RequestError
from slipstream.settings.serving import Serving
from slipstream.store import versions
from slipstream.store.database import Database
from slipstream.store.versions import Found, InUse
from slipstream.trinity.checkpoint_files import step_directory
from slipstream.versions import checkpoints, keeping, lanes
from slipstream.versions.checkpoints import Checkpoint
from slipstream.versions.files import NotPlaced, held, to_its_end

_log = structlog.get_logger(__name__)

_LOOKED_AT_AGAIN = 2
"""Newest steps that are looked at each time, for an export of theirs may come later."""

_RETRY = 60.0
"""Seconds until a version that could not be kept is tried again: a disk that is full, or another user's files."""

_NO_FOLDER = "expected serving.checkpoints or serving.keep, where versions are; found null"


class VersionRegistry:
    """Versions of the policy in the Trainer's directory, in the store, and in the folder of those that are kept.

    What changes the folder holds it until the store says the same, against other sidecars too, so that nothing is
    released while it is being asked for. It is held before a transaction of the store begins, never after.

    Attributes:
        published: the newest version that a marker has made known; None before the first, and without a directory.
        published_at: when that was first seen, Unix seconds.
    """

    def __init__(self, settings: Serving, database: Database, *, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._database = database
        self._clock = clock
        self._changing = asyncio.Lock()
        self._folders: dict[int, tuple[int, int]] = {}
        self._noted: dict[int, float] = {}
        self._picture: object = None
        self._retry_at = 0.0
        self._failed: dict[int, str] = {}
        self._told_missing = False
        self._reconciled = False
        self.published: int | None = None
        self.published_at = 0.0

    async def step(self) -> bool:
        """Note checkpoints that are new, keep the newest, and release those that were kept on sight only."""
        job, folder = self._settings.checkpoints, self._settings.kept_folder
        if job is None or folder is None:
            return False
        if not self._reconciled:
            await self._reconcile(folder)
            self._reconciled = True
        if not await asyncio.to_thread(job.is_dir):
            if not self._told_missing:
                _log.warning("checkpoints_missing", path=str(job), key="serving.checkpoints")
            self._told_missing = True
            return False
        self._told_missing = False
        there, found = await asyncio.to_thread(self._scan, job)
        if (last := there[-1] if there else None) != self.published:
            self.published, self.published_at = last, self._clock()
        for checkpoint, below in found:
            if self._noted.get(checkpoint.version) != checkpoint.made_at:
                await self._note(await asyncio.to_thread(checkpoints.describe, checkpoint, below))
        newest = there[-self._settings.keep_newest :] if self._settings.keep_newest else []
        picture = (newest, [(one.version, one.files) for one, _ in found[-_LOOKED_AT_AGAIN:]])
        if picture != self._picture or self._clock() >= self._retry_at:
            await self._keep_newest(newest)
            self._picture, self._retry_at = picture, self._clock() + _RETRY
        return False

    @asynccontextmanager
    async def keeping(self, version: int) -> AsyncIterator[Path | None]:
        """Keep the weights of a version, and hold the folder until they are noted in the store.

        Gives the folder that has them; None where there is no folder for kept versions at all.

        Raises:
            NotKept: the weights are gone, not whole yet, or cannot be linked.
        """
        async with self._changing, self._kept(version) as kept:
            yield kept

    @asynccontextmanager
    async def releasing(self, version: int) -> AsyncIterator[None]:
        """Delete the kept weights of a version, once its release was noted in the store."""
        async with self._changing, AsyncExitStack() as holding:
            if (folder := self._settings.kept_folder) is not None:
                await holding.enter_async_context(held(folder))
            yield
            if folder is not None:
                await to_its_end(keeping.release, folder, version)
            self._noted.pop(version, None)  # another training may have reached its number meanwhile
            self._folders.pop(version, None)

    async def put_in_lane(self, version: int, *, anew: bool = False) -> int:
        """Keep a version and have the lane load it. Returns the number that its Explorer says once it has.

        Args:
            anew: give it a higher number even if it is the lane's newest already.

        Raises:
            NotPlaced: there is no lane's directory, or the version is not there whole.
        """
        lane = self._settings.lane
        if lane is None or lane.directory is None:
            raise NotPlaced(
                "expected serving.lane.directory, the directory that the lane's Explorer follows; found null"
            )
        async with self._changing, self._kept(version) as kept:
            if kept is None:
                raise NotPlaced(_NO_FOLDER)
            async with self._database.write() as session:
                await versions.keep(session, version, str(kept), "rollout", self._clock())
            copy = self._settings.copy_files
            step = await to_its_end(lanes.put, lane.directory, kept, version, copy=copy, anew=anew)
        _log.info("version_in_lane", version=version, lane_step=step)
        return step

    async def check_there(self, version: int, param: str) -> None:
        """Make sure that a known version can be put into the lane, if Slipstream puts versions there at all.

        Args:
            param: the field that names the version, for the error.

        Raises:
            RequestError: 409, its weights are neither kept nor in the Trainer's directory.
        """
        lane, folder = self._settings.lane, self._settings.kept_folder
        if lane is None or lane.directory is None:
            return
        async with self._database.read() as session:
            known = await versions.known(session)
        with refused_where_not_kept(param):
            if folder is None:
                raise NotPlaced(_NO_FOLDER)
            if version in known:
                await asyncio.to_thread(keeping.check, self._settings.checkpoints, folder, version, known[version])

    async def in_lane(self) -> lanes.LaneStep | None:
        """The step that the lane's Explorer is to load; None without a lane's directory, or while it is empty. It is of
        no version if its weights are of another training than the registry's version of their number."""
        lane = self._settings.lane
        if lane is None or lane.directory is None:
            return None
        return await lanes.known(lane.directory, self._made_at)

    async def _made_at(self, version: int) -> float | None:
        async with self._database.read() as session:
            return await versions.made_at(session, version)

    @asynccontextmanager
    async def _kept(self, version: int) -> AsyncIterator[Path | None]:
        """Keep the weights of a version, and hold the folder meanwhile."""
        job, folder = self._settings.checkpoints, self._settings.kept_folder
        if folder is None:
            yield None
            return
        async with held(folder):
            made_at = await self._made_at(version)
            copy = self._settings.copy_files
            yield await to_its_end(keeping.keep, job, folder, version, copy=copy, made_at=made_at)

    def _scan(self, job: Path) -> tuple[list[int], list[tuple[Checkpoint, int | None]]]:
        """All published steps, and those of them that may be new, each with the step below it, in ascending order."""
        there = checkpoints.published(job)
        found = []
        for place, step in enumerate(there):
            try:
                status = step_directory(job, step).stat()
            except FileNotFoundError:
                continue
            seen = (status.st_ino, status.st_mtime_ns)
            if self._folders.get(step) == seen and place < len(there) - _LOOKED_AT_AGAIN:
                continue
            if (checkpoint := checkpoints.look(job, step)) is not None:
                self._folders[step] = seen
                found.append((checkpoint, there[place - 1] if place else None))
        return there, found

    async def _note(self, found: Found) -> None:
        async with self._changing:
            async with self._database.read() as session:
                kept, made_at = await versions.kept(session), (await versions.known(session)).get(found.version)
            on_sight = found.version in kept and kept[found.version][1] == "sight"
            if made_at not in (None, found.made_at) and on_sight:
                await self._release_on_sight(found.version)  # another training has its number now
            if made_at != found.made_at:
                async with self._database.write() as session:
                    new = await versions.record_found(session, found, self._clock())
                if new:
                    _log.info("version_found", version=found.version, checkpoint=found.checkpoint)
            self._noted[found.version] = found.made_at

    async def _keep_newest(self, newest: list[int]) -> None:
        async with self._changing:
            async with self._database.read() as session:
                kept = await versions.kept(session)
                registered = await versions.known(session)
            for version in newest:
                if version in registered:
                    await self._keep_on_sight(version)
            old = [version for version, (_, by) in kept.items() if by == "sight" and version not in newest]
            for version in sorted(old)[: max(0, len(old) + len(newest) - self._settings.keep_newest)]:
                await self._release_on_sight(version)

    async def _keep_on_sight(self, version: int) -> None:
        async with AsyncExitStack() as holding:
            try:
                path = await holding.enter_async_context(self._kept(version))
            except (NotPlaced, OSError) as error:
                if self._failed.get(version) != str(error):
                    _log.warning("version_not_kept", version=version, reason=str(error))
                self._failed[version] = str(error)
                return
            self._failed.pop(version, None)
            async with self._database.read() as session:
                noted = version in await versions.kept(session)
            if not noted and path is not None:
                async with self._database.write() as session:
                    await versions.keep(session, version, str(path), "sight", self._clock())

    async def _release_on_sight(self, version: int) -> None:
        async with AsyncExitStack() as holding:
            if (folder := self._settings.kept_folder) is None or not await _could_hold(holding, folder):
                return
            async with self._database.write() as session:
                kept = (await versions.kept(session)).get(version)
                if kept is None or kept[1] != "sight":
                    return  # meanwhile another sidecar released it, or a user had it kept
                try:
                    await versions.release(session, version, self._clock())
                except InUse:
                    return
            await to_its_end(keeping.release, folder, version)

    async def _reconcile(self, folder: Path) -> None:
        """Note in the store what is kept and was not noted, and that what is gone is not kept: after a crash between
        the two, or after a restore of either."""
        if not await asyncio.to_thread(folder.is_dir):
            return  # nothing was kept yet, or the disk is not mounted: no folder is made there
        async with self._changing, AsyncExitStack() as holding:
            if not await _could_hold(holding, folder):
                return
            there = set(await asyncio.to_thread(keeping.there, folder))
            async with self._database.read() as session:
                kept = await versions.kept(session)
            async with self._database.write() as session:
                for version in there - set(kept):
                    await versions.keep(session, version, str(folder / str(version)), "sight", self._clock())
                for version in set(kept) - there:
                    if kept[version][0] == str(folder / str(version)):
                        _log.error("kept_version_missing", version=version, path=kept[version][0])
                        await versions.lose(session, version, self._clock())


async def _could_hold(holding: AsyncExitStack, folder: Path) -> bool:
    """Hold a folder, unless it cannot be written: versions are found all the same."""
    try:
        await holding.enter_async_context(held(folder))
    except OSError as error:
        _log.warning("kept_folder_not_held", path=str(folder), reason=str(error))
        return False
    return True


@contextmanager
def refused_where_not_kept(param: str) -> Iterator[None]:
    """Answer 409 where the weights of the version that a field names cannot be kept, or are not there.

    Raises:
        RequestError: for a NotPlaced within.
    """
    try:
        yield
    except NotPlaced as error:
        raise RequestError(f"{param}: {error}", param=param, status=409, code="not_kept") from error
