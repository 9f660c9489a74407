"""Connected rooms with slippery moves (7-room of rlberry, Domingues et al., 2021): a small reward near, a large one far.

Rooms of 5 x 5 cells in a snake, five to a row; free cells are numbered row by row. Actions 0 to 3 are left, right, down, up.
A move into a wall stays; any other reaches its cell with probability 0.95, and the other free neighbours share the rest. The
reward belongs to the state that is left. The goal absorbs; nothing terminates, an episode is cut off after 40 steps.
"""

from __future__ import annotations

import functools

import numpy as np

from ubex import checks
from ubex.envs.base import TabularEnv, finite_horizon_optimum, table_step
from ubex.types import MDP

ROOM = 5
ROOMS_PER_ROW = 5
SUCCESS = 0.95
START_REWARD, NEAR_REWARD, GOAL_REWARD = 0.01, 0.1, 1.0
HORIZON = 40
MOVES = ((0, -1), (0, 1), (1, 0), (-1, 0))
"""Left, right, down, up, as changes of row and column."""


def seven_room() -> TabularEnv:
    """The paper's 7-room: 181 states, start (2, 20), small reward (2, 2), goal (8, 20).

    Example:
        >>> seven_room().num_states
        181
    """
    return n_room(7)


def n_room(rooms: int = 7) -> TabularEnv:
    """Rooms in a snake, the start in the middle one, rewards as in the paper.

    Example:
        >>> n_room(2).num_states
        51
    """
    return _made(checks.whole("rooms", rooms, 2))


@functools.lru_cache(maxsize=32)
def _made(rooms: int) -> TabularEnv:
    """The record for this many rooms, the same one each time, so that programs are compiled once."""
    free, centers = floor_plan(rooms)
    cells = [tuple(cell) for cell in np.argwhere(free)]
    number = {cell: index for index, cell in enumerate(cells)}
    start_room = rooms // 2
    start, near, goal = (number[centers[room]] for room in (start_room, 0, rooms - 1))
    p, r = np.zeros((len(cells), len(MOVES), len(cells))), np.zeros((len(cells), len(MOVES)))
    for here, (row, column) in enumerate(cells):
        neighbours = [(row + down, column + right) for down, right in MOVES]
        open_ones = [cell for cell in neighbours if cell in number]
        for action, target in enumerate(neighbours):
            if here == goal or target not in number:
                p[here, action, here] = 1.0
                continue
            others = [cell for cell in open_ones if cell != target]
            p[here, action, number[target]] = SUCCESS if others else 1.0
            for cell in others:
                p[here, action, number[cell]] = (1.0 - SUCCESS) / len(others)
    r[start], r[near], r[goal] = START_REWARD, NEAR_REWARD, GOAL_REWARD
    best = float(finite_horizon_optimum(p, r, HORIZON)[start])
    name = "seven-room" if rooms == 7 else f"{rooms}-room"
    actions = len(MOVES)
    return TabularEnv(
        name, len(cells), actions, HORIZON, start, table_step(MDP(p, r)), lambda: MDP(p, r), best, branching=actions
    )


def floor_plan(rooms: int) -> tuple[np.ndarray, list[tuple[int, int]]]:
    """Free cells of the grid (rows, columns), and the centre of every room along the snake.

    Example:
        >>> free, centers = floor_plan(2)
        >>> free.shape, centers
        ((5, 11), [(2, 2), (2, 8)])
    """
    rows = -(-rooms // ROOMS_PER_ROW)
    columns = min(rooms, ROOMS_PER_ROW)
    free = np.zeros((rows * (ROOM + 1) - 1, columns * (ROOM + 1) - 1), dtype=bool)
    centers: list[tuple[int, int]] = []
    for room in range(rooms):
        row, place = divmod(room, ROOMS_PER_ROW)
        column = place if row % 2 == 0 else columns - 1 - place
        top, left = row * (ROOM + 1), column * (ROOM + 1)
        free[top : top + ROOM, left : left + ROOM] = True
        center = (top + ROOM // 2, left + ROOM // 2)
        if centers:
            before = centers[-1]  # the door is half way: beside the room before, or below it where the snake turns
            free[(before[0] + center[0]) // 2, (before[1] + center[1]) // 2] = True
        centers.append(center)
    return free, centers
