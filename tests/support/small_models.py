"""Small models of several kinds, for tests of what is done with whole models."""

import torch
import torch.nn.functional as F
from torch import nn


class RMSNorm(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(features) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + 1e-6) * self.weight


def rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    low, high = x.chunk(2, dim=-1)
    return torch.cat((low * cos - high * sin, high * cos + low * sin), dim=-1)


class Attention(nn.Module):
    def __init__(self, features: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query_key_value = nn.Linear(features, 3 * features, bias=False)
        self.output = nn.Linear(features, features, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        batch, length, features = x.shape
        split = self.query_key_value(x).view(batch, length, 3, self.heads, features // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(rotated(q, cos, sin), rotated(k, cos, sin), v, is_causal=True)
        return self.output(mixed.transpose(1, 2).reshape(batch, length, features))


class SwiGLU(nn.Module):
    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Linear(features, hidden, bias=False)
        self.up = nn.Linear(features, hidden, bias=False)
        self.down = nn.Linear(hidden, features, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Layer(nn.Module):
    def __init__(self, features: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.attention_norm, self.mlp_norm = RMSNorm(features), RMSNorm(features)
        self.attention, self.mlp = Attention(features, heads), SwiGLU(features, hidden)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x), cos, sin)
        return x + self.mlp(self.mlp_norm(x))


class Decoder(nn.Module):
    """Token embedding, equal layers with RMSNorm, rotary attention and SwiGLU, and a head."""

    def __init__(self, layers: int = 3, features: int = 32, heads: int = 4, length: int = 12) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, features)
        self.layers = nn.ModuleList(Layer(features, heads, 80) for _ in range(layers))
        self.norm = RMSNorm(features)
        self.head = nn.Linear(features, 50, bias=False)
        size = features // heads
        angles = torch.outer(torch.arange(length), 10000.0 ** (-torch.arange(0, size, 2) / size))
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        cos, sin = self.cos[: tokens.shape[1]], self.sin[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.head(self.norm(x))


def decoder() -> tuple[nn.Module, list[torch.Tensor]]:
    return Decoder(), [torch.randint(0, 50, (2, 10))]


class ResidualBlock(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(2))
        self.norm1, self.norm2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.norm1(self.first(x)))
        return torch.relu(x + self.norm2(self.second(y)))


class Images(nn.Module):
    """Convolutions with batch norms by stored statistics, pools, and a head with a written-out softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3)
        self.blocks = nn.Sequential(ResidualBlock(8), ResidualBlock(8))
        self.head = nn.Linear(8, 5)
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                nn.init.normal_(module.running_mean)
                nn.init.uniform_(module.running_var, 0.5, 1.5)
        self.eval()

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(torch.relu(self.stem(images)), 2)
        x = self.blocks(x.to(memory_format=torch.channels_last)).mean(dim=(2, 3))
        return F.log_softmax(self.head(x), dim=-1)


def images() -> tuple[nn.Module, list[torch.Tensor]]:
    return Images(), [torch.randn(2, 3, 14, 14)]


class Clicks(nn.Module):
    """Bags of rows, their pairwise products, and an MLP; with a constant that the code makes, and sparse inputs."""

    def __init__(self, tables: int = 5) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(40, 16, mode="sum") for _ in range(tables))
        self.bottom = nn.Sequential(nn.Linear(7, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU())
        pairs = torch.tril_indices(tables + 1, tables + 1, offset=-1)
        self.register_buffer("one", pairs[0])
        self.register_buffer("other", pairs[1])
        self.top = nn.Sequential(nn.Linear(16 + pairs.shape[1], 24), nn.ReLU(), nn.Linear(24, 1))

    def forward(self, dense: torch.Tensor, indices: torch.Tensor, bought: torch.Tensor) -> torch.Tensor:
        scale = torch.tensor([0.5, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0])
        summary = self.bottom(torch.log1p(dense) * scale)
        bags = [table(indices[number]) for number, table in enumerate(self.tables)]
        vectors = torch.stack([summary, *bags], dim=1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))[:, self.one, self.other]
        click = torch.sigmoid(self.top(torch.cat((summary, products), dim=1))).squeeze(1)
        return torch.where(bought, click, -1.0)


def clicks() -> tuple[nn.Module, list[torch.Tensor]]:
    dense = torch.rand(9, 7) * (torch.rand(9, 7) < 0.4)
    return Clicks(), [dense, torch.randint(0, 40, (5, 9, 3)), torch.rand(9) < 0.7]


class WrittenOut(nn.Module):
    """Attention by two products with a causal mask between, and an embedding whose bags have offsets as an input."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(16, 48)
        self.table = nn.Parameter(torch.randn(20, 16))
        self.register_buffer("visible", torch.ones(6, 6, dtype=torch.bool).tril())

    def forward(self, x: torch.Tensor, rows: torch.Tensor, offsets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        q, k, v = (part.view(3, 6, 2, 8).transpose(1, 2) for part in self.project(x).split(16, dim=2))
        scores = (q @ k.transpose(-2, -1)) * 8**-0.5
        mixed = torch.softmax(scores.masked_fill(~self.visible, float("-inf")), dim=-1) @ v
        bags = F.embedding_bag(rows, self.table, offsets, mode="mean")
        return mixed.transpose(1, 2).reshape(3, 6, 16) + x, torch.tanh(bags)


def written_out() -> tuple[nn.Module, list[torch.Tensor]]:
    return WrittenOut(), [torch.randn(3, 6, 16), torch.randint(0, 20, (12,)), torch.tensor([0, 3, 3, 9])]
