"""Ranks that divide heads among themselves: all-to-all of heads for rows (Ulysses)."""

import torch
import torch.distributed as dist


class Team:
    """The team of a rank: its `size`, the rank's `group` of heads, its `own_rows` of q, and those of the team, `rows`."""

    def __init__(self, plan, rank, process_group):
        self.ranks, self.process_group, self.world = plan._team(rank), process_group, plan.world
        self.size, self.group = len(self.ranks), rank - self.ranks[0]
        self._counts = {keys: [plan._count(other, keys) for other in self.ranks] for keys in (False, True)}
        self.own_rows, self.rows = self._counts[False][self.group], sum(self._counts[False])

    def exchange(self, gives_heads, keys, tensors):
        """Returns tensors [B, one group of heads, rows of the team, ...] of tensors [B, heads, own rows, ...] if
        `gives_heads`, else the reverse. `keys` tells of each tensor if its rows are keys. One message for each dtype."""
        found = [None] * len(tensors)
        for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
            at = [i for i, tensor in enumerate(tensors) if tensor.dtype == dtype]
            parts = self._exchange(gives_heads, [self._counts[keys[i]] for i in at], [tensors[i] for i in at])
            for i, part in zip(at, parts):
                found[i] = part
        return tuple(found)

    def _exchange(self, gives_heads, counts, tensors):
        sent, shapes = [], []
        for member in range(self.size):
            going, coming = [], []
            for count, tensor in zip(counts, tensors):
                if gives_heads:
                    going.append(tensor.chunk(self.size, 1)[member])
                    coming.append([tensor.shape[0], tensor.shape[1] // self.size, count[member], *tensor.shape[3:]])
                else:
                    going.append(tensor.split(count, 2)[member])
                    coming.append([*tensor.shape[:2], count[self.group], *tensor.shape[3:]])
            sent.append(torch.cat([part.reshape(-1) for part in going]))
            shapes.append(coming)
        sizes = [[torch.Size(shape).numel() for shape in coming] for coming in shapes]
        come = sent[0].new_empty(sum(map(sum, sizes)))
        dist.all_to_all_single(
            come, torch.cat(sent), self._splits(map(sum, sizes)), self._splits(map(len, sent)), group=self.process_group
        )
        parts = iter(come.split([one for of_member in sizes for one in of_member]))
        of_members = [[next(parts).view(shape) for shape in coming] for coming in shapes]
        return [torch.cat(of_tensor, 2 if gives_heads else 1) for of_tensor in zip(*of_members)]

    def _splits(self, of_team):
        """Returns numbers of elements for all ranks of the process group."""
        splits = [0] * self.world
        splits[self.ranks[0] : self.ranks[-1] + 1] = of_team
        return splits
