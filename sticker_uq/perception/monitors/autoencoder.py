# SPDX-License-Identifier: Apache-2.0
"""The autoencoder monitor: what a variational autoencoder cannot draw again, it has not seen (Stocco et al. 2020)."""

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sticker_uq.detection.kernels.devices import single_thread
from sticker_uq.perception.monitors.interface import Arrays, Monitor, Objects
from sticker_uq.scene import FloatArray, InvalidInput

_CHUNK = 1024


class Vae(nn.Module):
    """The variational autoencoder of crops of ``shape`` (C, h, w), 0..1, one hidden layer on either side."""

    def __init__(self, shape: tuple[int, ...], hidden: int, latent: int) -> None:
        super().__init__()
        size = int(np.prod(shape))
        self.shape = shape
        self.encoder = nn.Sequential(nn.Flatten(), nn.Linear(size, hidden), nn.ReLU())
        self.mean = nn.Linear(hidden, latent)
        self.log_variance = nn.Linear(hidden, latent)
        self.decoder = nn.Sequential(nn.Linear(latent, hidden), nn.ReLU(), nn.Linear(hidden, size))

    def reconstruct(self, crops: Tensor) -> Tensor:
        return torch.sigmoid(self.decoder(self.mean(self.encoder(crops)))).view_as(crops)

    def loss(self, crops: Tensor, noise: Tensor) -> Tensor:
        """Minus the evidence lower bound per crop, pixels as probabilities (Kingma and Welling 2013)."""
        hidden = self.encoder(crops)
        mean, log_variance = self.mean(hidden), self.log_variance(hidden)
        logits = self.decoder(mean + noise * torch.exp(log_variance / 2))
        drawn = F.binary_cross_entropy_with_logits(logits, crops.flatten(1), reduction="sum")
        divergence = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum()
        return (drawn + divergence) / len(crops)


class Autoencoder(Monitor):
    """Mean squared difference between a crop and what a variational autoencoder makes of it.

    ``hidden`` and ``latent``: sizes of its layers (the published code has a latent space of 2); ``steps`` of Adam with
    ``batch`` crops each; ``seed``: of weights, order and noise. The crops are 0..1.
    """

    name = "autoencoder"
    needs = ("crops",)

    def __init__(
        self, hidden: int = 128, latent: int = 2, steps: int = 1500, batch: int = 128, seed: int = 0
    ) -> None:
        super().__init__(hidden=hidden, latent=latent, steps=steps, batch=batch, seed=seed)

    @single_thread()
    def _fit(self, objects: Objects) -> Arrays:
        crops = _tensor(objects.crops)
        if crops.min() < 0 or crops.max() > 1:
            low, high = float(crops.min()), float(crops.max())
            raise InvalidInput(f"crops have values from {low:g} to {high:g}, expected 0 to 1")
        options = self._options
        generator = torch.Generator().manual_seed(options["seed"])
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(options["seed"])
            vae = Vae(tuple(crops.shape[1:]), options["hidden"], options["latent"])
        optimizer = torch.optim.Adam(vae.parameters(), 1e-3)
        batch = min(options["batch"], len(crops))
        for _ in range(options["steps"]):
            rows = torch.randint(len(crops), (batch,), generator=generator)
            noise = torch.randn((batch, options["latent"]), generator=generator)
            loss = vae.loss(crops[rows], noise)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        learned: Arrays = {name: tensor.numpy() for name, tensor in vae.state_dict().items()}
        return {**learned, "shape": np.array(vae.shape, np.int64)}

    @single_thread()
    @torch.no_grad()
    def _score(self, objects: Objects) -> FloatArray:
        crops, vae = _tensor(objects.crops), self.drawer()
        if tuple(crops.shape[1:]) != vae.shape:
            raise InvalidInput(
                f"crops have shape {tuple(crops.shape[1:])}, the autoencoder was fitted on {vae.shape}"
            )
        parts = [
            ((part - vae.reconstruct(part)) ** 2).flatten(1).mean(dim=1).double()
            for part in crops.split(_CHUNK)
        ]
        return torch.cat(parts).numpy()

    def drawer(self) -> Vae:
        shape = tuple(self._learned["shape"].tolist())
        vae = Vae(shape, self._options["hidden"], self._options["latent"])
        learned = {name: np.array(self._learned[name]) for name in vae.state_dict()}
        vae.load_state_dict({name: torch.from_numpy(value) for name, value in learned.items()})
        return vae.eval().requires_grad_(False)


def _tensor(crops: FloatArray | None) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(crops, np.float32))
