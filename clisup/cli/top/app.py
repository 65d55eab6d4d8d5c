"""Full-screen view: Textual's application around a `Board`, fed by one connection, and a second for a followed session."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, ClassVar

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Footer
from textual.worker import Worker

from clisup.cli.top.dialogs import AnswerForm, Ask, Confirm, Help, Whole
from clisup.cli.top.link import EventFeed, in_thread
from clisup.cli.top.model import FIRST_SORT, SORTS, Board, pause_after
from clisup.cli.top.panes import ApprovalPane, FollowPane, HeadPane, SessionsPane
from clisup.cli.top.texts import Span, head_lines, start_after, table, title_line
from clisup.cli.views.answer import blob_reader
from clisup.cli.views.events import Event, checked_event, question_lines
from clisup.cli.views.form import form_of, with_whole_input
from clisup.cli.views.terminal import plain, short_name
from clisup.client.raw import JsonObject
from clisup.errors import ClisupError

if TYPE_CHECKING:
    from clisup.cli.fleet.feed import FleetFeed

__all__ = ["ARMED_AFTER_S", "PAINT_S", "Top"]

PAINT_S = 0.25
"""Seconds between two drawings of the screen. A key draws it at once."""

ARMED_AFTER_S = 0.6
"""Seconds before a new question can be answered: the key may have been meant for the one before."""


class Top(App[int]):
    """Application. `path` is the daemon's socket, or `boxes` are the daemons; the other arguments are the first state of the view."""

    ENABLE_COMMAND_PALETTE = False
    TITLE = "clisup top"
    CSS = "Screen { layout: vertical; overflow: hidden; } ToastRack { align: right top; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,f", "follow", "follow", key_display="f"),
        Binding("i", "interrupt", "interrupt"),
        Binding("a", "answer('allow')", "allow"),
        Binding("A", "answer('always')", "always", show=False),
        Binding("d", "answer('deny')", "deny"),
        Binding("s", "sort", "sort"),
        Binding("slash", "filter", "filter", key_display="/"),
        Binding("question_mark", "keys", "help", key_display="?"),
        Binding("q", "quit", "quit"),
        Binding("ctrl+c", "quit", show=False, priority=True),
        Binding("escape", "back", show=False),
        *(
            Binding(key, f"move({by})", show=False, priority=False)
            for key, by in {"up,k": -1, "down,j": 1, "pageup": -10, "pagedown": 10, "g,home": -(10**6), "G,end": 10**6}.items()
        ),
    ]  # fmt: skip

    def __init__(
        self,
        path: str,
        *,
        sort: str = FIRST_SORT,
        wanted: str = "",
        follow: str | None = None,
        boxes: Sequence[str] = (),
    ) -> None:
        super().__init__(ansi_color=bool(os.environ.get("NO_COLOR")))  # no colours, and no greys instead
        self.board = Board()
        self._path, self._sort, self._wanted, self._to_follow = path, sort, wanted, follow
        self._feed = self._feed_of(boxes)
        self._look = asyncio.Event()
        self._pinned: tuple[str, str] | None = None
        self._pinned_at = 0.0
        self._followed: tuple[str, Worker[None]] | None = None

    def _feed_of(self, boxes: Sequence[str]) -> EventFeed | FleetFeed:
        if not boxes:
            return EventFeed(self._path, "*", None, on_event=self._on_event, on_state=self._on_state)
        from clisup.cli.fleet.feed import FleetFeed

        return FleetFeed(boxes, on_event=self._on_event, on_state=self._on_state)

    def _place(self, session_id: str) -> tuple[str, str]:
        """Return the client's path, and the id there, of a session of the view."""
        return (self._path, session_id) if isinstance(self._feed, EventFeed) else self._feed.place(session_id)

    def compose(self) -> ComposeResult:
        self.head, self.rows, self.question, self.pane = HeadPane(), SessionsPane(), ApprovalPane(), FollowPane()
        self.footer = Footer(show_command_palette=False, compact=True)
        yield from (self.head, self.rows, self.pane, self.question, self.footer)

    def on_mount(self) -> None:
        self.rows.focus()
        for number in (signal.SIGTERM, signal.SIGHUP):  # restore the terminal
            try:
                asyncio.get_running_loop().add_signal_handler(number, partial(self.exit, return_code=128 + number))
            except (RuntimeError, ValueError):
                pass  # not in the main thread: a test
        self.run_worker(self._receive(), group="feed", exit_on_error=True)
        self.run_worker(self._watch(), group="status", exit_on_error=True)
        self.set_interval(PAINT_S, self._paint)

    async def on_unmount(self) -> None:
        """Close the connections before the loop ends."""
        working = list(self.workers)
        for worker in working:
            worker.cancel()
        await asyncio.gather(*(worker.wait() for worker in working), return_exceptions=True)
        await asyncio.sleep(0)  # a transport closes its socket one round later

    # -- input ---------------------------------------------------------------------------------------------------------

    async def _receive(self) -> None:
        try:
            await self._feed.run()
        except ClisupError as error:  # permanent: another program listens there, or access is denied
            self.exit(return_code=error.exit_code, message=f"clisup: {error.message}")

    async def _watch(self) -> None:
        """Ask for the status about once a second, and soon after a turn began or ended."""
        while True:
            self._look.clear()
            began = monotonic()
            try:
                self.board.take_status(await self._feed.call("daemon/status"), monotonic())
                if self.board.approvals_doubtful:
                    self.board.take_approvals((await self._feed.call("approval/list"))["approvals"])
                if self._to_follow is not None:
                    self._follow(self._to_follow)
            except ClisupError:
                pass  # the daemon is away: the feed reconnects, and the head says so
            pause = pause_after(monotonic() - began)
            await asyncio.sleep(pause / 2)
            try:
                async with asyncio.timeout(pause / 2):
                    await self._look.wait()
            except TimeoutError:
                pass

    def _on_event(self, event: Event) -> None:
        if self.board.take_event(event, monotonic()):
            self._look.set()

    def _on_state(self, connected: bool) -> None:
        self.board.connected = connected
        self._look.set()

    # -- the screen ----------------------------------------------------------------------------------------------------

    def _paint(self) -> None:
        now = monotonic()
        shown = self.board.shown(self._sort, self._wanted, now)
        self.head.show([*head_lines(self.board, self.size.width - 2, now), *self._chosen_view(len(shown))])
        self.rows.show(table(self.board, shown, self.rows.scrollable_content_region.width, now))
        self._paint_question(now)
        self.pane.paint()

    def _chosen_view(self, shown: int) -> list[list[Span]]:
        """Return a line with the filter and the order, if they are not the defaults."""
        parts: list[Span] = []
        if self._wanted:
            parts.append((f"filter: {self._wanted} ({shown} of {len(self.board.sessions)})  ", "warn"))
        if self._sort != FIRST_SORT:
            parts.append((f"sorted by {self._sort}", "dim"))
        return [parts] if parts else []

    def _paint_question(self, now: float) -> None:
        event = self.board.question(self._pinned, self.rows.selected)
        if event is None:
            self._pinned = None
            self.question.hide()
            return
        key = (event["session_id"], event["approval_id"])
        if key != self._pinned:
            self._pinned, self._pinned_at = key, now
        form, count = form_of(event), len(self.board.approvals)
        several = f" (1 of {count})" if count > 1 else ""
        title = f"{short_name(event['session_id'])} wants you{several}{title_line(self.board.session(event['session_id']), ': ')}"
        self.question.show(form.head(), title, self.size.height // 3, is_form=form.kind != "tool")

    def on_sessions_pane_chosen(self) -> None:
        """Show the question of the chosen session, if it has one."""
        session_id = self.rows.selected
        asks = any(of == session_id for of, _ in self.board.approvals)
        if asks and self._pinned is not None and self._pinned[0] != session_id:
            self._pinned = None
        self._paint()

    # -- keys --------------------------------------------------------------------------------------------------------

    def action_move(self, by: int) -> None:
        if self.focused is self.pane.log_lines:
            self.pane.scroll(by)
        else:
            self.rows.move(by)

    async def action_back(self) -> None:
        """Close the followed events, or clear the filter."""
        if self._followed is not None:
            self._stop_following()
        elif self._wanted:
            self._wanted = ""
        self._paint()

    def action_sort(self) -> None:
        orders = list(SORTS)
        self._sort = orders[(orders.index(self._sort) + 1) % len(orders)]
        self._notify(f"sorted by {self._sort}")
        self._paint()

    def action_filter(self) -> None:
        def done(value: str | None) -> None:
            if value is not None:
                self._wanted = value.strip()
                self._paint()

        asked = "Only sessions with all of these words (empty: all sessions):"
        self.push_screen(Ask("filter", asked, self._wanted), done)

    def action_keys(self) -> None:
        self.push_screen(Help())

    def action_interrupt(self) -> None:
        session = self.board.session(self.rows.selected)
        if session is None or not session.get("turn_id"):
            self._notify("no turn runs in this session", bad=True)
            return
        if self._is_hidden(self.rows):
            return
        session_id, turn_id = session["session_id"], session["turn_id"]

        def done(mode: str | None) -> None:
            if mode is not None:
                asked = {"session_id": session_id, "turn_id": turn_id, "mode": mode}
                self.run_worker(self._request("session/interrupt", f"{turn_id} of {short_name(session_id)}", asked))

        asked_of = f"End {turn_id} of {short_name(session_id)} ({plain(session['backend'])})?{title_line(session)}"
        self.push_screen(Confirm(asked_of), done)

    def _is_hidden(self, part: Widget) -> bool:
        """Tell whether the screen is too small for all of `part`, and notify the user: no key acts on a hidden part."""
        hidden = part.region.bottom > self.footer.region.y
        if hidden:
            self._notify("the terminal has too few lines to show what this key acts on: make it taller", bad=True)
        return hidden

    # -- answers -----------------------------------------------------------------------------------------------------

    def action_answer(self, word: str) -> None:
        """Answer the question on the screen. A question that is not shown whole cannot be allowed."""
        event = self.board.approvals.get(self._pinned) if self._pinned else None
        if event is None:
            self._notify("no pending approval", bad=True)
        elif self._is_hidden(self.question):
            pass
        elif monotonic() - self._pinned_at < ARMED_AFTER_S:
            self._notify("this question is new: read it, and press again")
        elif word == "deny":
            self._respond(event, word)
        elif event.get("blob") or form_of(event).kind != "tool":
            self.run_worker(self._answer_form(event))
        else:
            self._allow(event, word)

    def _allow(self, event: Event, word: str) -> None:
        if self.question.whole:
            self._respond(event, word)
        else:
            self.push_screen(Whole(question_lines(event)), lambda word: self._respond(event, word))

    async def _answer_form(self, event: Event) -> None:
        """Show the form of a question or a plan. Its whole input may be in a blob."""
        session_id = event["session_id"]
        read = blob_reader(*self._place(session_id), "clisup-top")
        form = form_of(await in_thread(partial(with_whole_input, event, read)))
        if form.kind == "tool":
            self.push_screen(Whole(question_lines(event)), lambda word: self._respond(event, word))
            return
        title = f"{short_name(session_id)} wants you{title_line(self.board.session(session_id), ': ')}"

        def done(answer: JsonObject | None) -> None:
            if answer is not None:
                self._send_answer(event, answer)

        self.push_screen(AnswerForm(form, title), done)

    def _respond(self, event: Event, word: str | None) -> None:
        if word == "deny":
            named = f"{plain(event['tool_name'])} of {short_name(event['session_id'])} is denied."
            title = title_line(self.board.session(event["session_id"]))
            asked = f"{named}{title}\nMessage to the model? (only claude passes it on)"
            self.push_screen(Ask("deny", asked), lambda text: self._deny(event, text))
        elif word is not None:
            more = {"remember": True} if word == "always" else {}
            self._send_answer(event, {"decision": "allow", **more})

    def _deny(self, event: Event, text: str | None) -> None:
        if text is not None:
            more = {"message": text.strip()} if text.strip() else {}
            self._send_answer(event, {"decision": "deny", **more})

    def _send_answer(self, event: Event, answer: JsonObject) -> None:
        named = {"session_id": event["session_id"], "approval_id": event["approval_id"], **answer}
        self.run_worker(self._request("approval/respond", f"{answer['decision']} {event['tool_name']}", named))

    async def _request(self, method: str, what: str, params: JsonObject) -> None:
        try:
            result = await self._feed.call(method, patient=True, **params)
        except ClisupError as error:
            self._notify(error.message, bad=True)
            return
        self._notify(f"{what}: {result.get('outcome') or 'done'}")
        self._look.set()

    def _notify(self, text: str, *, bad: bool = False) -> None:
        self.notify(text, severity="error" if bad else "information", timeout=6 if bad else 3, markup=False)

    # -- following ---------------------------------------------------------------------------------------------------

    def action_follow(self) -> None:
        """Follow the chosen session, or stop if it is followed already."""
        chosen = self.rows.selected
        if chosen is None:
            return
        if self._followed is not None and self._followed[0] == chosen:
            self._stop_following()
        else:
            self._follow(chosen)

    def _follow(self, session_id: str) -> None:
        self._to_follow = None
        self._stop_following()
        session = self.board.session(session_id)
        if session is None:
            self._notify(f"session {short_name(session_id)} is not open: clisup logs shows it", bad=True)
            return
        self.rows.selected = session_id
        self.pane.begin(f"{short_name(session_id)} {session['backend']}")
        feed = EventFeed(
            *self._place(session_id), start_after(session),
            on_event=self._take_followed, on_state=self._on_followed, deltas=True,
        )  # fmt: skip
        self._followed = session_id, self.run_worker(self._follow_until_gone(feed), group="follow")

    async def _follow_until_gone(self, feed: EventFeed) -> None:
        try:
            await feed.run()
        except ClisupError as error:  # the session was deleted
            self.pane.write([(error.message, "bad")])

    def _take_followed(self, event: Event) -> None:
        try:
            self.pane.take(checked_event(event))
        except (KeyError, TypeError, ValueError, AttributeError):  # another daemon, perhaps a later one
            self.pane.write([("an event has another form than this clisup knows", "warn")])

    def _on_followed(self, connected: bool) -> None:
        if not connected:
            self.pane.write([("reconnecting ...", "warn")])

    def _stop_following(self) -> None:
        if self._followed is not None:
            self._followed[1].cancel()
            self._followed = None
            self.pane.display = False
            self.rows.focus()
