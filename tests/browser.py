"""A real browser, Chromium without a window, for tests of pages."""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
ARGUMENTS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-default-apps --disable-extensions --mute-audio"
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    """One for all; without it a reason to skip on a user's machine, and a failure in CI."""
    if not CHROMIUM or not DRIVER:
        missing = "chromium and chromedriver are not installed"
        if "CI" in os.environ:
            pytest.fail(missing)
        pytest.skip(missing)
    with opened(f"--user-data-dir={tmp_path_factory.mktemp('profile')}") as driver:
        yield driver


@contextmanager
def opened(*more: str) -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM or ""
    for argument in (*ARGUMENTS.split(), *more):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    try:
        yield driver
    finally:
        driver.quit()


def show(browser: webdriver.Chrome, url: str, width: int, media: Mapping[str, str]) -> None:
    """Open a page in a window of that width, with media features such as `prefers-color-scheme`."""
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    features = [{"name": name, "value": value} for name, value in media.items()]
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    browser.get(url)


def asked_for(browser: webdriver.Chrome) -> list[str]:
    """Addresses that pages have asked for since the log was last read."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    sent = [message["params"] for message in messages if message["method"] == "Network.requestWillBeSent"]
    # The page that the browser itself starts with may still load when the log is read for the first time.
    return [params["request"]["url"] for params in sent if not params["documentURL"].startswith("chrome:")]
