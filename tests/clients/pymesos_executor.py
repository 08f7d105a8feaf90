"""An executor of pymesos, unchanged: multiplies what its task's data says, once its scheduler has said something."""

import base64
import sys
from threading import Event, Thread

from pymesos import Executor, MesosExecutorDriver


class Multiplier(Executor):
    """Runs one task in a thread."""

    def __init__(self):
        self.asked = Event()

    def launchTask(self, driver, task):
        def status(state, data=None):
            update = {"task_id": task["task_id"], "state": state}
            if data is not None:
                update["data"] = base64.b64encode(data).decode()
            driver.sendStatusUpdate(update)

        def work():
            status("TASK_RUNNING")
            driver.sendFrameworkMessage(base64.b64encode(b"registered").decode())
            self.asked.wait(60)
            left, right = base64.b64decode(task["data"]).split(b"*")
            status("TASK_FINISHED", b"%d" % (int(left) * int(right)))

        Thread(target=work, daemon=True).start()

    def frameworkMessage(self, driver, data):
        driver.sendFrameworkMessage(base64.b64encode(base64.b64decode(data) + b" yes").decode())
        self.asked.set()

    def shutdown(self, driver):
        driver.stop()


driver = MesosExecutorDriver(Multiplier())
driver.run()
sys.exit(0)
