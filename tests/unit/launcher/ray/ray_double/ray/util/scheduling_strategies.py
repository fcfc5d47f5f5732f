class NodeAffinitySchedulingStrategy:
    def __init__(self, node_id, soft):
        pass


class PlacementGroupSchedulingStrategy(NodeAffinitySchedulingStrategy):
    pass
