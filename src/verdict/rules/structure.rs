//! NK1xxx: would the API server take the manifest?

rules! {
    SYNTAX = "NK1001", Error, "A manifest is YAML or JSON that Kubernetes can read";
    DUPLICATE_KEY = "NK1002", Error, "A key is given once";
    NO_KIND = "NK1003", Error, "A manifest has apiVersion and kind";
    VERSION = "NK1004", Error, "The API version is served";
    KIND = "NK1005", Error, "The kind exists in its API group";
    DEPRECATED = "NK1006", Warning, "The API version is not deprecated";
    UNKNOWN_FIELD = "NK1010", Error, "A field exists in the schema";
    TYPE = "NK1011", Error, "A value has the type of its field";
    REQUIRED = "NK1012", Error, "Required fields are given";
    ENUM = "NK1013", Error, "A value is one of those allowed";
    PATTERN = "NK1014", Error, "A value matches the pattern of its field";
    RANGE = "NK1015", Error, "A value is neither too small nor too large";
    LIST = "NK1016", Error, "Items of a list do not repeat";
    FORMAT = "NK1017", Error, "A value has the format of its field";
    NAME = "NK1018", Error, "An object has a valid name";
    MEANING = "NK1020", Error, "The fields of an object make sense together";
    PLACEHOLDER = "NK1021", Error, "A value is no placeholder";
    RULE = "NK1030", Error, "A cross-field rule of the definition holds";
    BROKEN_RULE = "NK1031", Error, "A rule of a definition can be evaluated";
}
