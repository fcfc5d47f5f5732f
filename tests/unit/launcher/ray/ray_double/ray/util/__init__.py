_GROUPS = {}


class _Group:
    def __init__(self, bundles):
        self.bundle_specs = bundles

    def wait(self, timeout):
        return True


def placement_group(bundles, strategy, name, lifetime, bundle_label_selector):
    _GROUPS[name] = _Group(bundles)
    return _GROUPS[name]


def get_placement_group(name):
    return _GROUPS[name]


def remove_placement_group(group):
    for name in [name for name, other in _GROUPS.items() if other is group]:
        del _GROUPS[name]


def placement_group_table(group=None):
    tables = {name: {"name": name, "state": "CREATED", "bundles_to_node_id": {at: "n1" for at in range(len(one.bundle_specs))}}
              for name, one in _GROUPS.items()}
    return tables if group is None else next(tables[name] for name, other in _GROUPS.items() if other is group)


def get_node_ip_address():
    return "10.0.0.1"
