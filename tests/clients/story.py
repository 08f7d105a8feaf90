"""What the scripts share: events in a queue, waits that end, and steps that are said."""

import queue
import sys

# Far above what is ever needed, so that a slow machine is not a failing one.
PATIENCE = 60


class Story:
    """Events as they come, from a client's own thread."""

    def __init__(self):
        self._events = queue.Queue()
        self._kept = []

    def tell(self, kind, value=None):
        """Something has happened."""
        self._events.put((kind, value))

    def wait(self, kind, wanted=lambda value: True):
        """The first event of this kind that is wanted; those before it are kept for later waits."""
        for place, (its_kind, value) in enumerate(self._kept):
            if its_kind == kind and wanted(value):
                del self._kept[place]
                return value
        while True:
            try:
                event = self._events.get(timeout=PATIENCE)
            except queue.Empty:
                sys.exit("not within %s s: %s; what came: %r" % (PATIENCE, kind, self._kept))
            if event[0] == kind and wanted(event[1]):
                return event[1]
            self._kept.append(event)

    def forget(self, kind):
        """Events of this kind that have come so far do not count; gives what they were."""
        while not self._events.empty():
            self._kept.append(self._events.get())
        forgotten = [value for its_kind, value in self._kept if its_kind == kind]
        self._kept = [event for event in self._kept if event[0] != kind]
        return forgotten


def done(step):
    """A step holds."""
    print("ok", step, flush=True)
