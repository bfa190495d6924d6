"""A container that is created and has no grant yet, and the checks after each hostile call."""
import json

from containers import EXCLUSIVE, fake_container
from harness import HOOK, NodeCase, limited, run

MEGABYTE = 1 << 20


class HostileCase(NodeCase):
    def setUp(self):
        super().setUp()
        self.container = fake_container(self, annotations=EXCLUSIVE)
        self.bundle = self.container.bundle
        self.rules = self.container.rules()

    def assert_untouched(self, container=None):
        container = container or self.container
        self.assertEqual(container.nodes(), {})
        self.assertEqual(container.rules(), self.rules)
        self.assert_nothing_left()

    def assert_granted(self):
        self.assertEqual(self.container.nodes(), {"uverbs1": ("c", 231, 193, "0o666"),
                                                  "rdma_cm": ("c", *self.node.numbers["rdma_cm"], "0o666")})
        self.assertIn("c 231:193 rw", self.container.rules())
        self.assertEqual(self.holders(), {"mlx5_1": ["container " + self.container.bundle.id]})
        self.assertEqual([name for name in self.ledger() if name.startswith("pending")], [])
        self.assert_node_unchanged()

    def create(self, **changes):
        return self.hook("createRuntime", self.container.state(**changes))

    def create_limited(self, **limits):
        return self.create_by(*limited(**limits), env={})

    def create_by(self, *before, **settings):
        """Calls the hook through the command `before`."""
        state = json.dumps(self.container.state())
        return run([*before, HOOK, *self.arguments("createRuntime")[1:]], input=state, **settings)
