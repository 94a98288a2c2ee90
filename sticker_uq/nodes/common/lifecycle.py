# SPDX-License-Identifier: Apache-2.0
"""Base class of all ROS nodes: a lifecycle node that logs failed transitions, and a process that exits cleanly.

rclpy swallows exceptions of transitions; here each is logged in one line. Invalid input fails the transition (the node keeps
its state and can be configured again); an unexpected exception releases all resources and leaves the node unconfigured.
"""

import contextlib
import os
import signal
import socket
import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, Generic, NoReturn, Protocol, TypeVar

import rclpy
from pydantic import BaseModel
from rcl_interfaces.msg import ParameterDescriptor
from rclpy.exceptions import InvalidHandle
from rclpy.executors import Executor, ExternalShutdownException, SingleThreadedExecutor
from rclpy.lifecycle import LifecycleNode, LifecyclePublisher, LifecycleState, TransitionCallbackReturn
from rclpy.node import Node
from rclpy.qos import QoSProfile
from rclpy.signals import SignalHandlerOptions

from sticker_uq.cell.transport import transport_environment
from sticker_uq.nodes.common.diagnostics import Diagnostics, Level, PartReport, steady_timer
from sticker_uq.nodes.common.parameters import declare_settings, note_parameter_files
from sticker_uq.nodes.common.watchdog import BEAT_S, Watchdog
from sticker_uq.scene import InvalidInput


@contextlib.contextmanager
def stop_signals() -> Iterator[Callable[[Callable[[], None]], None]]:
    """Handle SIGINT and SIGTERM; yields a function that registers a callback.

    Callbacks run in a thread on the first signal, or at once if it has arrived. Python runs signal handlers only between two
    bytecodes of the main thread, which may block inside the middleware; a wake-up file descriptor reaches another thread.
    """
    receiver, sender = socket.socketpair()
    sender.setblocking(False)
    arrived = threading.Event()
    registered: list[Callable[[], None]] = []
    lock = threading.Lock()

    def watch() -> None:
        while receiver.recv(1):
            with lock:
                arrived.set()
                callbacks = list(registered)
            for callback in callbacks:
                callback()

    def register(callback: Callable[[], None]) -> None:
        with lock:
            registered.append(callback)
            already = arrived.is_set()
        if already:
            callback()

    watcher = threading.Thread(target=watch, name="signals", daemon=True)
    old_fd = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
    old_handlers = {s: signal.signal(s, lambda *_: None) for s in (signal.SIGINT, signal.SIGTERM)}
    watcher.start()
    try:
        yield register
    finally:
        signal.set_wakeup_fd(old_fd)
        for number, handler in old_handlers.items():
            signal.signal(number, handler)
        sender.close()
        watcher.join()
        receiver.close()


class Destroyable(Protocol):
    """What a node has while it is configured."""

    def destroy(self) -> object:
        """Give back what it holds."""


M = TypeVar("M", bound=BaseModel)
P = TypeVar("P", bound=Destroyable)

NOT_A_SAFETY_FUNCTION = (
    "not a safety function in the sense of ISO 10218 / ISO 13849: it protects laptops and logos, "
    "people are protected by the rated controller"
)

_AUTOSTART = ParameterDescriptor(
    description="Configure and activate without a lifecycle manager", read_only=True
)


class ManagedNode(LifecycleNode, Generic[M]):
    """A lifecycle node with validated settings and /diagnostics.

    Subclasses implement :meth:`configure` and :meth:`activate` and register cleanup callbacks in the exit stacks
    ``while_configured`` and ``while_active``, which cleanup, deactivation, shutdown and every failure unwind. ``settings`` are
    the validated, immutable parameters since configure; those in ``locked_while_active`` cannot be changed in the active state.
    """

    settings: M

    def __init__(
        self,
        name: str,
        model: type[M],
        *,
        locked_while_active: frozenset[str] = frozenset(),
        **arguments: Any,
    ) -> None:
        super().__init__(name, **arguments)
        self.while_configured = ExitStack()
        self.while_active = ExitStack()
        self.last_failure = ""
        self._locked_while_active = locked_while_active
        self.declare_parameter("autostart", False, _AUTOSTART)
        self.parameters = declare_settings(
            self, model, locked=self.reason_for_lock, changed=self._on_parameters
        )
        self.diagnostics = Diagnostics(self)
        self.diagnostics.add("lifecycle", self._report_lifecycle)
        self._answer_impossible_transitions()
        self.watchdog = Watchdog(self.get_fully_qualified_name())
        steady_timer(self, BEAT_S, self.watchdog.beat)

    def configure(self) -> None:
        """Acquire resources for the settings; raise :class:`InvalidInput` for invalid ones."""

    def activate(self) -> None:
        """Start working. Publishers are already enabled."""

    def settings_changed(self, old: M, new: M) -> None:
        """Called after valid parameters were set at run time; ``self.settings`` is already ``new``."""

    def reason_for_lock(self, name: str) -> str | None:
        """Why the parameter ``name`` cannot be changed now; None when it can."""
        if name in self._locked_while_active and self.is_active:
            return f"{name} cannot be changed while {self.get_name()} is active: deactivate it first"
        return None

    @property
    def state(self) -> str:
        """The label of the lifecycle state: unconfigured, inactive, active or finalized, or that of a transition state."""
        return str(self._state_machine.current_state[1])

    @property
    def is_active(self) -> bool:
        return self.state == "active"

    @property
    def autostart(self) -> bool:
        return bool(self.get_parameter("autostart").value)

    def start(self) -> bool:
        """Configure and activate; False if that failed, with the reason in :attr:`last_failure`."""
        success = TransitionCallbackReturn.SUCCESS
        return self.trigger_configure() == success and self.trigger_activate() == success

    def keep(self, part: P) -> P:
        """``part``, which cleanup destroys; for use in :meth:`configure`."""
        self.while_configured.callback(part.destroy)
        return part

    def report_while_configured(self, name: str, report: Callable[[], PartReport]) -> None:
        """Let ``report`` say in /diagnostics how ``name`` is, until cleanup."""
        self.diagnostics.add(name, report)
        self.while_configured.callback(self.diagnostics.remove, name)

    def create_managed_publisher(
        self, message_type: type, topic: str, profile: QoSProfile
    ) -> LifecyclePublisher:
        """A publisher that sends only in the active state, destroyed by cleanup; for use in :meth:`configure`."""
        publisher = self.create_lifecycle_publisher(message_type, topic, profile)
        self.while_configured.callback(self.destroy_lifecycle_publisher, publisher)
        return publisher

    def destroy_node(self) -> None:
        """Release all resources, then destroy the node: a worker must not outlive it."""
        try:
            self._release()
        except Exception as error:  # noqa: BLE001 - the node is destroyed all the same
            self.get_logger().error(f"something could not be released: {_name_of(error)}")
        super().destroy_node()
        # rclpy does not destroy it, which would keep the participant of a context that was shut down
        self._state_machine.destroy_when_not_in_use()

    # Lifecycle callbacks. Order matters: while_active is unwound while the publishers still work.

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        def work() -> None:
            self.settings = self.parameters.read()
            self.configure()

        return self._transition("configure", work, undo=self.while_configured)

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        super().on_activate(state)
        result = self._transition("activate", self.activate, undo=self.while_active)
        if result != TransitionCallbackReturn.SUCCESS:
            super().on_deactivate(state)
        return result

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        result = self._transition("deactivate", self.while_active.close)
        super().on_deactivate(state)
        return result

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        return self._transition("cleanup", self.while_configured.close)

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        return self._transition("shut down", self._release)

    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        try:
            self._release()
        except Exception as error:  # noqa: BLE001 - the rest must be undone; the failure that led here stays told
            self.get_logger().error(f"something could not be released: {_name_of(error)}")
        super().on_deactivate(state)
        return TransitionCallbackReturn.SUCCESS

    def _release(self) -> None:
        with self.while_configured:
            self.while_active.close()

    def _transition(
        self, name: str, work: Callable[[], None], undo: ExitStack | None = None
    ) -> TransitionCallbackReturn:
        try:
            try:
                with self.watchdog.pause():
                    work()
            except BaseException:
                if undo is not None:
                    undo.close()
                raise
        except InvalidInput as error:
            return self._report_failure(name, str(error), TransitionCallbackReturn.FAILURE)
        except Exception as error:  # noqa: BLE001 - rclpy would swallow it
            self.get_logger().debug(traceback.format_exc())
            return self._report_failure(name, _name_of(error), TransitionCallbackReturn.ERROR)
        self.last_failure = ""
        self.get_logger().info(f"{name}: done")
        return TransitionCallbackReturn.SUCCESS

    def _report_failure(
        self, name: str, reason: str, result: TransitionCallbackReturn
    ) -> TransitionCallbackReturn:
        self.last_failure = f"{name} failed: {reason}"
        self.get_logger().error(self.last_failure)
        return result

    def _on_parameters(self, old: M, new: M) -> None:
        self.settings = new
        try:
            self.settings_changed(old, new)
        except Exception as error:  # noqa: BLE001 - a failing change of a parameter must not end the node
            self.get_logger().debug(traceback.format_exc())
            self.get_logger().error(f"changed parameters could not be applied: {_name_of(error)}")

    def _report_lifecycle(self) -> PartReport:
        level = Level.ERROR if self.last_failure else Level.OK if self.is_active else Level.WARN
        values = {"state": self.state, "last_failure": self.last_failure or None}
        return PartReport(level, self.last_failure or self.state, values)

    def _answer_impossible_transitions(self) -> None:
        """Refuse a transition that is invalid in the current state; in rclpy the exception would end the process."""
        service = self._service_change_state
        change_state = service.callback

        def answer(request: Any, response: Any) -> Any:
            possible = {(t[0], t[1]) for t in self._state_machine.available_transitions}
            wanted = request.transition
            if any(wanted.label == label if wanted.label else wanted.id == id_ for id_, label in possible):
                return change_state(request, response)
            self.get_logger().error(f"no transition {wanted.label or wanted.id!r} from state {self.state}")
            response.success = False
            return response

        service.callback = answer


class _Stop:
    """A request to end the process with an exit status; wakes the executor."""

    def __init__(self, node: Node) -> None:
        self.code: int | None = None
        self._guard = node.create_guard_condition(lambda: None)

    def request(self, code: int) -> None:
        if self.code is not None:
            return
        self.code = code
        with contextlib.suppress(InvalidHandle):  # the node is already destroyed
            self._guard.trigger()


_STOPS: weakref.WeakKeyDictionary[Node, _Stop] = weakref.WeakKeyDictionary()


def request_exit(node: Node, code: int = 0) -> None:
    """End :func:`run_node` from any thread, with exit status ``code``; a node that something else runs goes on."""
    if (stop := _STOPS.get(node)) is not None:
        stop.request(code)


def init_ros(args: list[str] | None = None, **arguments: Any) -> None:
    """``rclpy.init`` with the cell's transport settings in the environment of this process.

    See :func:`~sticker_uq.cell.transport.transport_environment`. Raises what either raises.
    """
    middleware = rclpy.get_rmw_implementation_identifier()
    os.environ.update(transport_environment(os.environ, middleware))
    note_parameter_files(sys.argv if args is None else args)
    rclpy.init(args=args, **arguments)


def run_process(
    factory: Callable[[], Node], *, executor: Callable[[], Executor] = SingleThreadedExecutor
) -> NoReturn:
    """Call :func:`run_node`, and end the process with its exit status."""
    exit_process(run_node(factory, executor=executor))


def run_node(
    factory: Callable[[], Node], *, executor: Callable[[], Executor] = SingleThreadedExecutor
) -> int:
    """Run the node that ``factory`` makes until SIGINT, SIGTERM or :func:`request_exit`; returns the exit status.

    0 after a signal, 1 when the node could not be created, when its autostart failed or when one of its callbacks raised, 2 for
    invalid ROS arguments. Each failure is one line on stderr; tracebacks are at log level debug.
    """
    with stop_signals() as on_signal:
        try:
            init_ros(signal_handler_options=SignalHandlerOptions.NO)
        except InvalidInput as error:
            print(error, file=sys.stderr)
            return 1
        except Exception as error:  # noqa: BLE001 - rclpy has no common base of its errors
            print(f"invalid ROS arguments: {error}", file=sys.stderr)
            return 2
        try:
            return _run(factory, on_signal, executor)
        finally:
            rclpy.try_shutdown()


def exit_process(code: int) -> NoReturn:
    """End at once. The interpreter's shutdown takes seconds when torch is loaded, a second signal in that time would change the
    exit status, and native code of a thread that still computes aborts when it returns.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _run(
    factory: Callable[[], Node],
    on_signal: Callable[[Callable[[], None]], None],
    make_executor: Callable[[], Executor],
) -> int:
    try:
        node = factory()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told in one line
        rclpy.logging.get_logger("sticker_uq").debug(traceback.format_exc())
        print(f"the node could not be started: {_name_of(error)}", file=sys.stderr)
        return 1
    logger = node.get_logger()
    logger.info(f"{node.get_fully_qualified_name()} starts; {NOT_A_SAFETY_FUNCTION}")
    stop = _STOPS[node] = _Stop(node)
    on_signal(lambda: stop.request(0))
    executor = make_executor()
    executor.add_node(node)
    if isinstance(node, ManagedNode):
        node.watchdog.start()
    try:
        if isinstance(node, ManagedNode) and stop.code is None and node.autostart and not node.start():
            logger.fatal(f"autostart failed, giving up: {node.last_failure}")
            return 1
        if isinstance(node, ManagedNode) and not node.autostart:
            logger.info("not configured: waiting for a configure transition (autostart is false)")
        while stop.code is None and rclpy.ok():
            executor.spin_once()
        return stop.code or 0
    except ExternalShutdownException:
        return 0
    except Exception as error:  # noqa: BLE001 - the process ends loudly, in one line
        logger.debug(traceback.format_exc())
        logger.fatal(f"a callback failed, giving up: {_name_of(error)}")
        return 1
    finally:
        if isinstance(node, ManagedNode):
            node.watchdog.expect_end()
        if isinstance(node, ManagedNode) and node.state != "finalized":
            node.trigger_shutdown()
        executor.shutdown()
        node.destroy_node()
        if isinstance(node, ManagedNode):
            node.watchdog.end()


def _name_of(error: Exception) -> str:
    return str(error) if isinstance(error, InvalidInput) else f"{type(error).__name__}: {error}"
