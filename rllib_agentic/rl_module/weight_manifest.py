"""What a broadcast of weights consists of, agreed on before its first byte, and the two ends of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from rllib_agentic.rl_module.weight_checks import checkpoint_names, sample_names, tensor_checksum
from rllib_agentic.rl_module.weight_group import WeightGroup

BUCKET_BYTES = 256 << 20
_ALIGNED = 16  # bytes; a view needs its dtype's


class TensorSpec(NamedTuple):
    """One tensor on its way: its name in a checkpoint, its shape, and its dtype there as torch names it."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def torch_dtype(self) -> torch.dtype:
        """Its dtype."""
        return getattr(torch, self.dtype)

    @property
    def nbytes(self) -> int:
        """Its size."""
        return math.prod(self.shape) * self.torch_dtype.itemsize


@dataclass(frozen=True, slots=True)
class WeightManifest:
    """All tensors of a version in their order, and checksums of some.

    Attributes:
        specs: in the order in which they are sent.
        checksums: of a sample, in the dtype that is sent.
        bucket_bytes: tensors travel together in buffers of about this size.
    """

    specs: tuple[TensorSpec, ...]
    checksums: Mapping[str, int]
    bucket_bytes: int = BUCKET_BYTES

    @classmethod
    def of(
        cls, weights: Mapping[str, torch.Tensor], dtype: torch.dtype | None, bucket_bytes: int = BUCKET_BYTES
    ) -> WeightManifest:
        """The manifest of weights as a module names them.

        Args:
            weights: name to tensor.
            dtype: in which floats are sent; None leaves each in its own.
            bucket_bytes: size of a buffer.

        Raises:
            InputError: a name that belongs to no checkpoint.
        """
        named = checkpoint_names(weights)
        specs = tuple(TensorSpec(n, tuple(t.shape), _dtype_name(_sent_as(t, dtype))) for n, t in named.items())
        dtypes = {spec.name: spec.torch_dtype for spec in specs}
        sums = {name: tensor_checksum(named[name].to(dtypes[name])) for name in sample_names(named)}
        return cls(specs, sums, bucket_bytes)

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> WeightManifest:
        """What :meth:`plain` gave."""
        specs = tuple(TensorSpec(name, tuple(shape), dtype) for name, shape, dtype in plain["specs"])
        return cls(specs, dict(plain["checksums"]), plain["bucket_bytes"])

    def plain(self) -> dict[str, Any]:
        """In lists and dicts, for calls that carry nothing else."""
        return {
            "specs": [[spec.name, list(spec.shape), spec.dtype] for spec in self.specs],
            "checksums": dict(self.checksums),
            "bucket_bytes": self.bucket_bytes,
        }

    @property
    def shapes(self) -> dict[str, torch.Size]:
        """Name to shape."""
        return {spec.name: torch.Size(spec.shape) for spec in self.specs}

    @property
    def nbytes(self) -> int:
        """How much is sent to each receiver."""
        return sum(spec.nbytes for spec in self.specs)

    def send(self, group: WeightGroup, weights: Mapping[str, torch.Tensor], device: torch.device) -> None:
        """Broadcast all tensors from rank 0.

        Args:
            group: all of whose other ranks are in :meth:`receive`.
            weights: those that this manifest was made of; they are cast on their way.
            device: the group's.

        Raises:
            WeightsInterruptedError: see :meth:`~rllib_agentic.rl_module.weight_group.WeightGroup.broadcast`.
        """
        named = checkpoint_names(weights)
        for bucket in self._buckets():
            buffer = _buffer(bucket, device)
            for spec, view in _views(bucket, buffer):
                view.copy_(named[spec.name].detach())
            group.broadcast(buffer)

    def receive(self, group: WeightGroup, device: torch.device) -> Iterator[tuple[str, torch.Tensor]]:
        """Take part in the broadcast as any other rank; gives tensor by tensor, each with memory that stays its own.

        Raises:
            WeightsInterruptedError: as above.
            ValueError: a tensor of the sample is not what was sent.
        """
        for bucket in self._buckets():
            buffer = _buffer(bucket, device)
            group.broadcast(buffer)
            for spec, view in _views(bucket, buffer):
                if spec.name in self.checksums and tensor_checksum(view) != self.checksums[spec.name]:
                    raise ValueError(f"weights that came are not those that were sent: {spec.name}")
                yield spec.name, view

    def _buckets(self) -> Iterator[list[TensorSpec]]:
        bucket: list[TensorSpec] = []
        size = 0
        for spec in self.specs:
            if bucket and size + spec.nbytes > self.bucket_bytes:
                yield bucket
                bucket, size = [], 0
            bucket.append(spec)
            size += _padded(spec)
        if bucket:
            yield bucket


def _buffer(bucket: list[TensorSpec], device: torch.device) -> torch.Tensor:
    return torch.empty(sum(map(_padded, bucket)), dtype=torch.uint8, device=device)


def _views(bucket: list[TensorSpec], buffer: torch.Tensor) -> Iterator[tuple[TensorSpec, torch.Tensor]]:
    start = 0
    for spec in bucket:
        yield spec, buffer[start : start + spec.nbytes].view(spec.torch_dtype).view(spec.shape)
        start += _padded(spec)


def _padded(spec: TensorSpec) -> int:
    return -(-spec.nbytes // _ALIGNED) * _ALIGNED


def _sent_as(tensor: torch.Tensor, dtype: torch.dtype | None) -> torch.dtype:
    return dtype if dtype is not None and tensor.is_floating_point() else tensor.dtype


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
