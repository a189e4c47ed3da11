"""Uses the page in headless Chromium: types, reads the stream, stops it, and begins a new conversation.

pip install playwright; apt-get install chromium; python page.py BINARY [SCREENSHOT.png]
"""

import shutil
import sys

from playwright.sync_api import expect, sync_playwright

from server import Server

server = Server(sys.argv[1], "--parallel", "2")
with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
    page = browser.new_page(viewport={"width": 900, "height": 700})
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.goto(server.url)
    # The built-in model would finish too early, so the line is slowed down.
    slow = {"offline": False, "latency": 0, "downloadThroughput": 4096, "uploadThroughput": -1}
    page.context.new_cdp_session(page).send("Network.emulateNetworkConditions", slow)

    # The text grows while it is streamed.
    page.fill("#text", "Tell me about a fish.")
    page.keyboard.press("Enter")
    expect(page.locator(".user")).to_have_text("Tell me about a fish.")
    answer = page.locator(".assistant").first
    expect(answer).not_to_be_empty()
    early = len(answer.inner_text())
    expect(page.locator("#stop")).to_be_visible()
    page.wait_for_function("n => document.querySelector('.assistant').textContent.length > n", arg=early)

    # The text remains, and no more arrives.
    page.click("#stop")
    expect(page.locator("#send")).to_be_enabled()
    stopped = answer.inner_text()
    page.wait_for_timeout(300)
    assert answer.inner_text() == stopped
    expect(page.locator("#stats")).to_contain_text("memory")
    expect(page.locator("#stats")).to_contain_text("/s")

    page.fill("#text", "<b>And</b> a dog?")
    page.click("#send")
    expect(page.locator(".assistant")).to_have_count(2)
    expect(page.locator(".user").nth(1)).to_have_text("<b>And</b> a dog?")
    page.wait_for_timeout(200)
    if len(sys.argv) > 2:
        page.screenshot(path=sys.argv[2])
    page.click("#fresh")
    expect(page.locator(".turn")).to_have_count(0)
    page.fill("#text", "Once more.")
    page.keyboard.press("Enter")
    expect(page.locator(".assistant")).to_have_count(1)
    expect(page.locator(".assistant")).not_to_be_empty()
    page.click("#fresh")
    expect(page.locator(".turn")).to_have_count(0)
    assert not errors, errors
    browser.close()
server.end()
print("type, read, stop and a new conversation work")
