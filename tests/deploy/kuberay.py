"""A RayJob's fields as far as the chart uses them, strictly: an unknown one is an error.

No package of the registries has KubeRay's schemas. Written after ray-operator/apis/ray/v1/{rayjob,raycluster}_types.go
and controllers/ray/utils/validation.go of KubeRay 1.7.0; pod templates are checked with Kubernetes' own schema.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

# A DNS-1035 label. The operator's limit is 53 characters for a RayCluster, whose name is the RayJob's and six more.
JobName = Annotated[str, Field(pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?$", max_length=47)]


class _Object(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Metadata(_Object):
    name: JobName
    labels: dict[str, str]


class HeadGroup(_Object):
    rayStartParams: dict[str, str]
    template: dict[str, Any]


class WorkerGroup(HeadGroup):
    groupName: str
    replicas: Annotated[int, Field(ge=0)]
    minReplicas: Annotated[int, Field(ge=0)]
    maxReplicas: Annotated[int, Field(ge=0)]

    @model_validator(mode="after")
    def _within(self) -> WorkerGroup:
        assert self.minReplicas <= self.replicas <= self.maxReplicas
        return self


class RayCluster(_Object):
    rayVersion: Annotated[str, Field(pattern=r"^\d+\.\d+\.\d+$")]
    headGroupSpec: HeadGroup
    workerGroupSpecs: list[WorkerGroup] = []


class Spec(_Object):
    submissionMode: Literal["K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode"]
    entrypoint: Annotated[str, Field(min_length=1)]
    backoffLimit: Annotated[int, Field(ge=0)]
    shutdownAfterJobFinishes: bool
    ttlSecondsAfterFinished: Annotated[int, Field(ge=0)]
    rayClusterSpec: RayCluster


class RayJob(_Object):
    apiVersion: Literal["ray.io/v1"]
    kind: Literal["RayJob"]
    metadata: Metadata
    spec: Spec
