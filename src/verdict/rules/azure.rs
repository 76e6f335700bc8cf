//! NK2xxx: what Azure would not launch.

rules! {
    NO_SIZE = "NK2001", Error, "No VM size satisfies the NodePool";
    UNKNOWN_SIZE = "NK2002", Warning, "VM size, family, series or region does not exist";
    ZONE = "NK2003", Error, "Zone does not belong to the region";
    VALUE = "NK2004", Error, "Value that the label never has";
    KEY = "NK2005", Warning, "Label that no node has";
    RESTRICTED = "NK2006", Warning, "All sizes are restricted";
    RETIRED = "NK2007", Warning, "VM size is retired";
    RETIRING = "NK2008", Warning, "VM size will be retired";
    CONTRADICTION = "NK2009", Error, "Requirements contradict each other";
    BOUND = "NK2010", Error, "Gt or Lt on a label that is not a number";
    MIN_VALUES = "NK2011", Error, "minValues cannot be met";
    ARM64_IMAGE = "NK2012", Warning, "No image for Arm64 nodes";
    GPU_TAINT = "NK2013", Warning, "GPU nodes have no taint";
    GPU_DRIVER = "NK2014", Warning, "AKSNodeClass has no driver for the requested GPUs";
    IMAGE = "NK2015", Warning, "Image family is not supported";
    SUBNET = "NK2016", Error, "Subnet cannot hold nodes";
    TAG_OWNER = "NK2017", Error, "Tag claims ownership";
    TAG_LIMIT = "NK2018", Error, "Tags exceed Azure's limits";
    OS_DISK = "NK2019", Warning, "OS disk is too large for most local disks";
    SUBNET_ROOM = "NK2020", Warning, "Subnet is too small";
    KUBELET = "NK2021", Error, "AKS rejects the kubelet settings";
    WINDOWS_POOL = "NK2022", Error, "NodePool requires nodes other than Linux";
    WINDOWS_POD = "NK2023", Warning, "Pod requires Windows nodes";
    IPV6 = "NK2024", Warning, "Service requires IPv6";
    AUTOSCALER = "NK2025", Warning, "Cluster autoscaler beside Karpenter";
    CLUSTER = "NK2026", Error, "Cluster does not support node auto-provisioning";
    NO_CLASS = "NK2027", Warning, "AKSNodeClass does not exist in the input";
    POOL_NAME = "NK2028", Warning, "NodePool name is too long for its VMs";
    UNSUPPORTED_FIELD = "NK2029", Error, "Field is not supported in provisioner mode";
    OTHER_CLOUD = "NK2030", Error, "Label of another cloud";
}
