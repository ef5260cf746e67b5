"""Asks a running Prometheus."""

import json
import urllib.error
import urllib.parse
import urllib.request

from loopback import PATIENCE, get, opener


class Prometheus:
    """The HTTP API of a running Prometheus."""

    def __init__(self, port: int):
        self.url = f"http://127.0.0.1:{port}"

    def _data(self, path: str, **parameters):
        # A form, so that no query is too long for a request line.
        form = urllib.parse.urlencode(parameters, doseq=True).encode()
        request = urllib.request.Request(f"{self.url}/api/v1/{path}", data=form or None)
        try:
            with opener.open(request, timeout=PATIENCE) as answer:
                body = json.load(answer)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{path} {parameters}: {error.read().decode()}") from error
        assert body["status"] == "success", body
        return body["data"]

    def range(self, query: str, start: float, end: float, step: float) -> list[dict]:
        return self._data("query_range", query=query, start=start, end=end, step=step)["result"]

    def instant(self, query: str, at: float) -> list[dict]:
        return self._data("query", query=query, time=at)["result"]

    def label_values(self, label: str, match: str) -> list[str]:
        return json.loads(get(f"{self.url}/api/v1/label/{label}/values?" + urllib.parse.urlencode({"match[]": match})))["data"]

    def rules(self) -> list[dict]:
        return [dict(rule, group=group["name"]) for group in json.loads(get(f"{self.url}/api/v1/rules"))["data"]["groups"]
                for rule in group["rules"]]

    def alerts(self) -> list[dict]:
        return json.loads(get(f"{self.url}/api/v1/alerts"))["data"]["alerts"]
