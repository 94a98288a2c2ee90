# SPDX-License-Identifier: Apache-2.0
"""AmbiGuess (Weiss et al. 2022): regularised adversarial autoencoders of pairs of classes, and ambiguous images drawn
between them.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import qmc
from torch import Tensor, nn
from torch.autograd.functional import jvp
from torch.nn import functional as F

from sticker_uq.detection.kernels.devices import single_thread
from sticker_uq.scene import FloatArray, IntArray, InvalidInput

Pair = tuple[int, int]
_SLOPE = 0.2
_FUSED = 10_000_000
"""Parameters of all autoencoders from which a step is one pass over the memory; without, Adam takes most of the time."""


@dataclass(frozen=True)
class RaaeSettings:
    """``latent``: dimensions of the latent space (2 in the paper); ``hidden``: width of the layers; ``steps`` of Adam
    with ``batch`` pictures each; ``separation``: distance of a class's centre from the origin; ``tries``: how often an
    autoencoder is trained anew before its pair is given up; ``keep``: accepted autoencoders of each pair; ``swapped``: the
    discriminator also learns that a class under the name of the other is a fake. False is the paper's training, in which
    it never sees one, so that what it says there, and every label, is left to chance.
    """

    latent: int = 2
    hidden: int = 64
    steps: int = 1200
    batch: int = 64
    dropout: float = 0.1
    learning_rate: float = 1e-3
    separation: float = 3.0
    tries: int = 20
    keep: int = 1
    swapped: bool = True

    def __post_init__(self) -> None:
        least = {"latent": 1, "hidden": 1, "steps": 1, "batch": 2, "tries": 1, "keep": 1}
        for name, low in least.items():
            if getattr(self, name) < low:
                raise InvalidInput(f"{name} is {getattr(self, name)}, expected {low} or more")


@dataclass(frozen=True)
class Acceptance:
    """Whether an autoencoder came out as meant (Weiss et al. 2022, section V-C).

    ``discriminator``: share of codes and of samples of the prior that the discriminator tells apart, 0.5 where it cannot;
    ``classes``: share of nominal pictures whose own class gets the higher label.
    """

    discriminator: float
    classes: float

    @property
    def is_accepted(self) -> bool:
        """0.4 to 0.6 of ``discriminator``, 0.9 or more of ``classes``."""
        return 0.4 < self.discriminator < 0.6 and self.classes >= 0.9


@dataclass(frozen=True)
class Raae:
    """A trained autoencoder for pictures of ``shape`` (C, h, w), 0..1, of the classes ``pair``."""

    pair: Pair
    shape: tuple[int, ...]
    settings: RaaeSettings
    encoder: nn.Module
    decoder: nn.Module
    discriminator: nn.Module
    acceptance: Acceptance

    def encode(self, images: Tensor) -> Tensor:
        return self.encoder(images.flatten(1))

    def decode(self, codes: Tensor) -> Tensor:
        return torch.sigmoid(self.decoder(codes)).unflatten(1, self.shape)

    def label(self, codes: Tensor) -> Tensor:
        """Probabilities (N, 2) of the two classes at latent codes (N, L).

        What the discriminator makes of the code under each class, normalised to sum 1: the rule of the paper. (Its code takes
        the softmax of the two logits.)
        """
        each = []
        for side in range(2):
            given = F.one_hot(torch.full((len(codes),), side), 2).to(codes.dtype)
            each.append(torch.sigmoid(self.discriminator(torch.cat([codes, given], dim=1))))
        both = torch.cat(each, dim=1)
        return both / both.sum(dim=1, keepdim=True).clamp_min(1e-12)


class _Linear(nn.Module):
    """R linear layers at once: (R, B, i) to (R, B, o)."""

    def __init__(self, count: int, inputs: int, outputs: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(inputs)
        self.weight = nn.Parameter(torch.empty(count, inputs, outputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(count, 1, outputs).uniform_(-bound, bound))

    def forward(self, x: Tensor) -> Tensor:
        return torch.baddbmm(self.bias, x, self.weight)

    def one(self, number: int) -> nn.Linear:
        layer = nn.Linear(*self.weight.shape[1:])
        layer.weight = nn.Parameter(self.weight[number].T.detach().clone(), requires_grad=False)
        layer.bias = nn.Parameter(self.bias[number, 0].detach().clone(), requires_grad=False)
        return layer


class _Bank(nn.Sequential):
    def __init__(self, count: int, inputs: int, hidden: int, outputs: int, dropout: float) -> None:
        super().__init__(
            _Linear(count, inputs, hidden),
            nn.LeakyReLU(_SLOPE),
            nn.Dropout(dropout),
            _Linear(count, hidden, hidden),
            nn.LeakyReLU(_SLOPE),
            _Linear(count, hidden, outputs),
        )

    def one(self, number: int) -> nn.Sequential:
        layers = [layer.one(number) if isinstance(layer, _Linear) else layer for layer in self]
        return nn.Sequential(*(layer for layer in layers if not isinstance(layer, nn.Dropout))).eval()


def train_raaes(
    images: FloatArray,
    labels: IntArray,
    pairs: Sequence[Pair],
    settings: RaaeSettings | None = None,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> list[Raae]:
    """``settings.keep`` accepted autoencoders of each of ``pairs``, in their order.

    ``images`` (N, C, h, w) 0..1 with classes ``labels`` (N,); pairs that are not accepted are trained anew. ``progress`` gets the
    number of accepted autoencoders and of those wanted after each round.
    """
    settings = RaaeSettings() if settings is None else settings
    _check(images, labels, pairs)
    found: dict[Pair, list[Raae]] = {pair: [] for pair in pairs}
    for number in range(settings.tries):
        wanted = [pair for pair in pairs for _ in range(settings.keep - len(found[pair]))]
        if not wanted:
            break
        for raae in train_round(images, labels, wanted, settings, seed + number):
            if raae.acceptance.is_accepted:
                found[raae.pair].append(raae)
        if progress is not None:
            progress(sum(map(len, found.values())), settings.keep * len(pairs))
    missing = [pair for pair in pairs if len(found[pair]) < settings.keep]
    if missing:
        listed = ", ".join(f"{a} and {b}" for a, b in missing)
        raise InvalidInput(
            f"no autoencoder of {listed} was accepted in {settings.tries} tries of {settings.steps} steps"
        )
    return [raae for pair in pairs for raae in found[pair]]


@single_thread()
def train_round(
    images: FloatArray, labels: IntArray, pairs: Sequence[Pair], settings: RaaeSettings, seed: int
) -> list[Raae]:
    """One autoencoder per entry of ``pairs``, which may repeat, trained in one batch, accepted or not."""
    _check(images, labels, pairs)
    pictures = torch.from_numpy(np.ascontiguousarray(images, np.float32))
    shape, size = tuple(pictures.shape[1:]), pictures[0].numel()
    batches = _Batches(pictures.flatten(1), torch.from_numpy(np.asarray(labels)), pairs, settings, seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)  # initial weights and dropout
        encoder = _Bank(len(pairs), size, settings.hidden, settings.latent, settings.dropout)
        decoder = _Bank(len(pairs), settings.latent, settings.hidden, size, settings.dropout)
        discriminator = _Bank(len(pairs), settings.latent + 2, settings.hidden, 1, settings.dropout)
        _train(encoder, decoder, discriminator, batches, settings)
    for network in (encoder, decoder, discriminator):
        network.eval()
    acceptances = _accept(encoder, discriminator, batches)
    return [
        Raae(pair, shape, settings, encoder.one(r), decoder.one(r), discriminator.one(r), acceptance)
        for r, (pair, acceptance) in enumerate(zip(pairs, acceptances, strict=True))
    ]


class _Batches:
    """Random pictures of each pair, half of each class, with samples of the prior of the same classes."""

    def __init__(
        self, pictures: Tensor, labels: Tensor, pairs: Sequence[Pair], settings: RaaeSettings, seed: int
    ) -> None:
        self._pictures = pictures
        self._rows = [[torch.nonzero(labels == c)[:, 0] for c in pair] for pair in pairs]
        self._generator = torch.Generator().manual_seed(seed)
        half = settings.batch // 2
        self._half = half
        side = torch.arange(2).repeat_interleave(half)
        self.given = F.one_hot(side, 2).float().expand(len(pairs), -1, -1)
        centres = torch.zeros(2, settings.latent)
        centres[:, 0] = torch.tensor([-settings.separation, settings.separation])
        self._means = centres[side]

    def pictures(self) -> Tensor:
        """Half of each class, (R, 2 * half, size)."""

        def draw(own: Tensor) -> Tensor:
            return own[torch.randint(len(own), (self._half,), generator=self._generator)]

        return self._pictures[torch.stack([torch.cat([draw(own) for own in both]) for both in self._rows])]

    def prior(self) -> Tensor:
        """Latent codes, half of each class, (R, 2 * half, L)."""
        shape = (len(self._rows), *self._means.shape)
        return self._means + torch.randn(shape, generator=self._generator)


def _train(
    encoder: _Bank, decoder: _Bank, discriminator: _Bank, batches: _Batches, settings: RaaeSettings
) -> None:
    """The three steps of the paper in turn. Losses are summed over the autoencoders, which do not touch each other."""
    rate, count = settings.learning_rate, len(batches.given)
    drawn = [*encoder.parameters(), *decoder.parameters()]
    fused = sum(parameter.numel() for parameter in drawn) >= _FUSED
    drawing = torch.optim.Adam(drawn, rate, fused=fused)
    telling = torch.optim.Adam(discriminator.parameters(), rate, fused=fused)
    fooling = torch.optim.Adam(encoder.parameters(), rate, fused=fused)
    judge = nn.BCEWithLogitsLoss()
    for _ in range(settings.steps):
        images, prior = batches.pictures(), batches.prior()
        loss = F.mse_loss(torch.sigmoid(decoder(encoder(images))), images) * count
        _step(drawing, loss)
        with torch.no_grad():
            codes = encoder(images)
        real = discriminator(torch.cat([prior, batches.given], dim=2))
        fake = discriminator(torch.cat([codes, batches.given], dim=2))
        loss = (judge(real, torch.ones_like(real)) + judge(fake, torch.zeros_like(fake))) / 2 * count
        if settings.swapped:
            other = discriminator(torch.cat([prior, 1 - batches.given], dim=2))
            loss = loss + judge(other, torch.zeros_like(other)) / 2 * count
        _step(telling, loss)
        fake = discriminator(torch.cat([encoder(images), batches.given], dim=2))
        _step(fooling, judge(fake, torch.ones_like(fake)) * count)


def _step(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


@torch.no_grad()
def _accept(encoder: _Bank, discriminator: _Bank, batches: _Batches, rounds: int = 20) -> list[Acceptance]:
    told, right = [], []
    for _ in range(rounds):
        codes, given = encoder(batches.pictures()), batches.given
        real = discriminator(torch.cat([batches.prior(), given], dim=2)) > 0
        own = discriminator(torch.cat([codes, given], dim=2))
        other = discriminator(torch.cat([codes, 1 - given], dim=2))
        told.append((real.float().mean(dim=(1, 2)) + (own <= 0).float().mean(dim=(1, 2))) / 2)
        right.append((own > other).float().mean(dim=(1, 2)))
    means = (torch.stack(told).mean(dim=0).tolist(), torch.stack(right).mean(dim=0).tolist())
    return [Acceptance(*values) for values in zip(*means, strict=True)]


def _check(images: FloatArray, labels: IntArray, pairs: Sequence[Pair]) -> None:
    if images.ndim != 4 or len(images) != len(labels):
        raise InvalidInput(
            f"images have shape {images.shape} for {len(labels)} labels, expected (N, C, h, w)"
        )
    if not len(images) or images.min() < 0 or images.max() > 1:
        raise InvalidInput("images: expected at least one, with values 0 to 1")
    if not pairs:
        raise InvalidInput("no pair of classes, expected at least one")
    present: NDArray[np.int64] = np.unique(labels)
    for pair in pairs:
        if len(set(pair)) != 2 or not set(pair) <= set(present.tolist()):
            raise InvalidInput(f"pair {pair}: expected two different classes of {present.tolist()}")


TEST_DELTA, TRAINING_DELTA = 0.25, 0.4
"""The paper's delta_max: the largest difference of the two probabilities in pictures to test and to train with."""
_ANCHORS = 10  # two to the power of this
_SPREAD = 2.0  # standard deviations of the prior in directions that do not separate the classes; beyond lie no pictures
_ATTEMPTS = 100  # points tried per point wanted, as in the published code


@dataclass(frozen=True)
class AmbiguousImages:
    """``images`` (N, C, h, w) float32 0..1, each of two classes ``pairs`` (N, 2) with ``probabilities`` (N, 2)."""

    images: FloatArray
    pairs: IntArray
    probabilities: FloatArray

    def __len__(self) -> int:
        return len(self.images)

    def vectors(self, classes: int) -> FloatArray:
        """The probabilistic labels as class vectors (N, ``classes``)."""
        found = np.zeros((len(self), classes))
        np.put_along_axis(found, self.pairs, self.probabilities, axis=1)
        return found


def density(decode: Callable[[Tensor], Tensor], codes: Tensor) -> Tensor:
    """How fast the picture changes at codes (N, L): the Frobenius norm of its Jacobian, (N,)."""
    squared = torch.zeros(len(codes), dtype=codes.dtype)
    for axis in range(codes.shape[1]):
        direction = torch.zeros_like(codes)
        direction[:, axis] = 1
        _, change = jvp(decode, codes, direction)
        squared += (change**2).flatten(1).sum(dim=1)
    return squared.sqrt()


def region(separation: float, latent: int, spread: float = _SPREAD) -> tuple[FloatArray, FloatArray]:
    """Lowest and highest corner (L,) of what is sampled between the two classes.

    Two standard deviations of each class away from its centre on the axis that separates them, ``spread`` on the others.
    """
    high = np.full(latent, spread)
    high[0] = separation - 2.0
    if high[0] <= 0:
        raise InvalidInput(
            f"separation is {separation:g}, expected more than 2: there is nothing between the classes"
        )
    return -high, high


@single_thread()
@torch.no_grad()
def draw(
    raae: Raae, count: int, delta_max: float = TEST_DELTA, seed: int = 0
) -> tuple[FloatArray, FloatArray]:
    """Draw ``count`` latent codes (N, L) with labels (N, 2) that differ by at most ``delta_max``.

    Anchors that are not that ambiguous are left out, the others drawn in proportion to the :func:`density`, and
    a point taken anywhere in the cell around its anchor. Raises InvalidInput when the autoencoder has no such points.
    """
    if not 0 < delta_max <= 1:
        raise InvalidInput(f"delta_max is {delta_max:g}, expected more than 0 and at most 1")
    low, high = region(raae.settings.separation, raae.settings.latent)
    units = qmc.Sobol(len(low), rng=np.random.default_rng(seed)).random_base2(_ANCHORS)
    anchors = low + units * (high - low)
    labels = _labels(raae, anchors)
    anchors = anchors[np.abs(labels[:, 0] - labels[:, 1]) <= delta_max]
    if not len(anchors):
        raise InvalidInput(f"classes {raae.pair}: no point between them is ambiguous within {delta_max:g}")
    weights = density(raae.decode, torch.from_numpy(anchors).float()).double().numpy()
    side = (high - low) * 2.0 ** (-_ANCHORS / len(low))
    rng = np.random.default_rng([seed, 1])
    kept: list[FloatArray] = []
    found = 0
    for _ in range(_ATTEMPTS):
        chosen = rng.choice(len(anchors), max(count, 1), p=weights / weights.sum())
        codes = np.clip(anchors[chosen] + rng.uniform(-0.5, 0.5, (len(chosen), len(low))) * side, low, high)
        labels = _labels(raae, codes)
        fits = np.abs(labels[:, 0] - labels[:, 1]) <= delta_max
        kept.append(np.column_stack([codes, labels])[fits])
        found += int(fits.sum())
        if found >= count:
            table = np.concatenate(kept)[:count]
            return table[:, :-2], table[:, -2:]
    raise InvalidInput(
        f"classes {raae.pair}: only {found} of {count} points within {delta_max:g} found in {_ATTEMPTS} attempts each"
    )


def generate(
    raaes: Sequence[Raae], count: int, delta_max: float = TEST_DELTA, seed: int = 0
) -> AmbiguousImages:
    """``count`` images, split evenly over ``raaes``; InvalidInput as :func:`draw`."""
    if not raaes:
        raise InvalidInput("no autoencoder to draw pictures from, expected at least one")
    images, pairs, probabilities = [], [], []
    for number, raae in enumerate(raaes):
        share = count // len(raaes) + (number < count % len(raaes))
        if not share:
            continue
        codes, labels = draw(raae, share, delta_max, seed + number)
        with torch.no_grad():
            images.append(raae.decode(torch.from_numpy(codes).float()).numpy())
        pairs.append(np.tile(np.array(raae.pair), (share, 1)))
        probabilities.append(labels)
    return AmbiguousImages(np.concatenate(images), np.concatenate(pairs), np.concatenate(probabilities))


def _labels(raae: Raae, codes: FloatArray) -> FloatArray:
    return raae.label(torch.from_numpy(codes).float()).double().numpy()
