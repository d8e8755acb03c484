"""The supervisor's end of the wire to the zygote: orders out, news in, never waiting."""

import os
import select
import socket
from collections import deque
from typing import NamedTuple

from .frames import ORDER, Order


class _Unsent(NamedTuple):
    message: bytes
    descriptors: tuple[int, ...]


class OrderWire:
    """Sends orders, one after another, as far as the socket allows at the moment.

    At most one look at the processes is under way: a look may take long, and no other order is to
    stand behind a row of them.
    """

    def __init__(self, orders: socket.socket, poll: select.poll) -> None:
        self.looking = False
        self._orders = orders
        self._poll = poll
        self._unsent = deque[_Unsent]()
        orders.setblocking(False)

    def fileno(self) -> int:
        """The descriptor to watch."""
        return self._orders.fileno()

    def order(self, order: Order, number: int, descriptors: tuple[int, ...] = ()) -> None:
        """Put an order in line, and with it descriptors, which are closed once they are sent."""
        self._unsent.append(_Unsent(ORDER.pack(order, number), descriptors))
        self.flush()

    def look(self, running: int) -> None:
        """Have the processes of all calls looked at, so many of which are running."""
        self.looking = True
        self.order(Order.INSPECT, running)

    def flush(self) -> None:
        """Send what can be sent, and be woken when more can."""
        try:
            while self._unsent:
                self._send(self._unsent[0])
                self._let_go(self._unsent.popleft())
        except BlockingIOError:
            pass
        except (BrokenPipeError, ConnectionResetError):  # its last words come yet
            while self._unsent:
                self._let_go(self._unsent.popleft())
        events = select.POLLIN | (select.POLLOUT if self._unsent else 0)
        self._poll.modify(self._orders, events)

    def hear(self) -> bytes:
        """The next news; nothing if the zygote is gone."""
        try:
            return self._orders.recv(1 << 16)
        except ConnectionResetError:  # it ended with orders unread: what it said comes after
            return self._orders.recv(1 << 16)

    def _send(self, unsent: _Unsent) -> None:
        if unsent.descriptors:
            socket.send_fds(self._orders, [unsent.message], unsent.descriptors)
        else:
            self._orders.send(unsent.message)

    def _let_go(self, unsent: _Unsent) -> None:
        for descriptor in unsent.descriptors:
            os.close(descriptor)
