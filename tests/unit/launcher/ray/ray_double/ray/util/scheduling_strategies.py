class NodeAffinitySchedulingStrategy:
    def __init__(self, node_id, soft):
        pass


class PlacementGroupSchedulingStrategy:
    def __init__(self, group, placement_group_bundle_index):
        pass
