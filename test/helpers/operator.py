# SPDX-License-Identifier: Apache-2.0
"""A person before the operator's page in a real browser, and what such a person is asked."""

from playwright.sync_api import expect

from test.helpers.operator_page import gate, request

BOX = {"x1": 200.0, "y1": 200.0, "x2": 320.0, "y2": 300.0}
OTHER = {"x1": 500.0, "y1": 350.0, "x2": 640.0, "y2": 450.0}


SCENE = {
    "stamp": "2000", "picture": True, "width": 960, "height": 720, "passes": 20, "status": 1, "status_text": "", "dil": 0.2,
    "outcome": "ask", "reasons": [], "unexplained": [{"box": {"x1": 30.0, "y1": 30.0, "x2": 90.0, "y2": 90.0}}],
    "objects": [
        {
            "id": 5, "label": 1, "box": {"x1": 700, "y1": 100, "x2": 800, "y2": 160},
            "hulls": [[[700, 100], [706, 100], [703, 108]]],
            "probability": 0.97, "seen_in": 20, "unstable": False, "verdict": "keep", "by_operator": False,
        }
    ],
}  # fmt: skip


REGION = {"x1": 30.0, "y1": 30.0, "x2": 90.0, "y2": 90.0}
ELSEWHERE = {"x1": 820.0, "y1": 600.0, "x2": 900.0, "y2": 680.0}


class Operator:
    """A person before the page."""

    def __init__(self, context, address, state, cell):
        self.context, self.state, self.cell = context, state, cell
        self.trouble = []
        self.page = context.new_page()
        self.page.on("pageerror", lambda error: self.trouble.append(str(error)))
        self.page.on("console", lambda line: self.trouble.append(line.text) if line.type == "error" else None)
        self.page.on("request", self._asked_for)
        self.address = address
        self.page.clock.install(time=0)
        self.page.clock.pause_at(1000)  # nothing comes late on a busy machine
        self.page.goto(address)

    def _asked_for(self, request):
        if not request.url.startswith((self.address, self.address.replace("http", "ws"))):
            self.trouble.append(f"something from outside: {request.url}")

    def see(self, *objects, shown=True, **rest):
        self.state.put("gate", gate("intervention", "waiting_for_operator"))
        self.state.put("scene", SCENE)
        self.state.put("request", request(*objects, **rest))
        expect(self.page.locator("#objects li")).to_have_count(len(objects))
        # keys say nothing of a picture that is not there yet
        expect(self.page.locator("#draw")).to_have_attribute("aria-disabled", "false" if shown else "true")

    def is_called(self, name):
        self.page.fill("#who", name)

    def says(self, index, answer):
        self.page.locator("#objects li").nth(index).get_by_role("button", name=answer).click()

    def sends(self):
        self.page.click("#send")
        expect(self.page.locator("#message")).to_contain_text("Answer taken.")

    def drags(self, x1, y1, x2, y2):
        mouse = self.page.mouse
        mouse.move(*self.place(x1, y1))
        mouse.down()
        mouse.move(*self.place(x2, y2), steps=4)
        mouse.up()

    def expect_marked(self, *boxes):
        """Wait until of all regions these, and no others, have an edge in the colour of what may have been missed."""
        self.page.wait_for_function(
            """([regions, expected]) => {
                const canvas = document.getElementById("overlay"), scale = canvas.width / 960;
                const marked = (box) => {
                    const frame = [box.x1 * scale - 4, (box.y1 + 5) * scale, 8, (box.y2 - box.y1 - 10) * scale];
                    const { data } = canvas.getContext("2d").getImageData(...frame);
                    for (let i = 0; i < data.length; i += 4) {
                        const [red, green, blue] = data.slice(i, i + 3);
                        if (red > 190 && green > 60 && green < 120 && blue < 40) return true;
                    }
                    return false;
                };
                return canvas.width > 0 && JSON.stringify(regions.map(marked)) === JSON.stringify(expected);
            }""",
            arg=[[BOX, ELSEWHERE, REGION], [box in boxes for box in (BOX, ELSEWHERE, REGION)]],
        )

    def place(self, x, y):
        """Where a pixel of the camera's image is on the page."""
        # the picture gives the frame its size
        expect(self.page.locator("#picture")).to_have_js_property("naturalWidth", 960)
        frame = self.page.locator("#overlay").bounding_box()
        return frame["x"] + x * frame["width"] / 960, frame["y"] + y * frame["height"] / 720
