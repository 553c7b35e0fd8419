"""Where web servers lead on to: from https to nowhere else than https."""

import http.server
import ssl
import threading
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from virtualstack.errors import StorageError
from virtualstack.storage import Storage


@contextmanager
def served(handler, context=None):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http{'s' * (context is not None)}://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def context(tmp_path):
    """A certificate that nobody has signed."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, now - timedelta(days=1), now + timedelta(days=1))
    (tmp_path / "cert.pem").write_bytes(
        made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    found.load_cert_chain(tmp_path / "cert.pem")
    return found


def test_https_does_not_lead_to_http(context):
    """As to a service that gives credentials to whoever is near: those have no https."""
    asked = []

    class Secret(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            asked.append(self.path)
            self.send_response(206)
            self.send_header("Content-Range", "bytes 0-5/6")
            self.send_header("Content-Length", "6")
            self.end_headers()
            self.wfile.write(b"secret")

        def log_message(self, *_):
            pass

    with served(Secret) as inside:

        class Leads(Secret):
            def do_GET(self):
                self.send_response(302)
                self.send_header("Location", f"{inside}/credentials")
                self.send_header("Content-Length", "0")
                self.end_headers()

        with served(Leads, context) as url:
            options = {"allow_invalid_certificates": True, "max_retries": 0}
            with pytest.raises(StorageError, match=r"lead to an http:// address.*allow_http"):
                Storage.from_option({url: options}).source(f"{url}/a.nc").read(0, 6)
            assert not asked
            allowed = Storage.from_option({url: {**options, "allow_http": True}})
            assert bytes(allowed.source(f"{url}/a.nc").read(0, 6)) == b"secret"
