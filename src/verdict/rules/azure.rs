//! NK2xxx: would Azure launch what is asked for?

rules! {
    NO_SIZE = "NK2001", Error, "A VM size satisfies the NodePool";
    UNKNOWN_SIZE = "NK2002", Warning, "Sizes, families, series and regions exist";
    ZONE = "NK2003", Error, "A zone is one of the cluster's region";
    VALUE = "NK2004", Error, "A value is one that the label can have";
    KEY = "NK2005", Warning, "A label key is one that nodes have";
    RESTRICTED = "NK2006", Warning, "Not all sizes are restricted";
    RETIRED = "NK2007", Warning, "Sizes have not been retired";
    RETIRING = "NK2008", Warning, "Sizes are not about to be retired";
    CONTRADICTION = "NK2009", Error, "Requirements do not contradict each other";
    BOUND = "NK2010", Error, "A bound is on a label that is a number";
    MIN_VALUES = "NK2011", Error, "minValues can be met";
    ARM64_IMAGE = "NK2012", Warning, "Arm64 nodes have an image";
    GPU_TAINT = "NK2013", Warning, "Nodes with GPUs have a taint";
    GPU_DRIVER = "NK2014", Warning, "The class drives the GPUs that are asked for";
    IMAGE = "NK2015", Warning, "The image family is supported";
    SUBNET = "NK2016", Error, "The subnet is one that can hold nodes";
    TAG_OWNER = "NK2017", Error, "Tags do not claim ownership";
    TAG_LIMIT = "NK2018", Error, "Tags keep Azure's limits";
    OS_DISK = "NK2019", Warning, "The OS disk fits the local disk of most sizes";
    SUBNET_ROOM = "NK2020", Warning, "The subnet has room for the nodes";
    KUBELET = "NK2021", Error, "AKS takes the kubelet's settings";
    WINDOWS_POOL = "NK2022", Error, "A NodePool makes Linux nodes";
    WINDOWS_POD = "NK2023", Warning, "Pods can run on Linux nodes";
    IPV6 = "NK2024", Warning, "Services do without IPv6";
    AUTOSCALER = "NK2025", Warning, "Nothing else scales the nodes";
    CLUSTER = "NK2026", Error, "The cluster can have node auto-provisioning";
    NO_CLASS = "NK2027", Warning, "nodeClassRef names an AKSNodeClass of the input";
}
