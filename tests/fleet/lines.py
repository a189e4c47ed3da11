"""Prints 500 small requests of several types."""

import json


def requests(count=500):
    lines = []
    for i in range(count):
        body = {"prompt": f"Once upon a time number {i} was", "max_tokens": 4 + i % 9}
        if i % 5 == 0:
            body["temperature"] = 0
        if i % 7 == 0:
            body["response_format"] = {"type": "json_schema", "json_schema": {"schema": {"enum": ["yes", "no", i]}}}
        lines.append(json.dumps({"custom_id": f"r{i}", "method": "POST", "url": "/v1/completions", "body": body}))
    return lines


BATCH = ["batch", "-i", "-", "-o", "-", "--reproducible", "-c", "128", "-t", "1", "--parallel", "4"]
