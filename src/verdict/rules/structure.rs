//! NK1xxx: what the API server would reject.

rules! {
    SYNTAX = "NK1001", Error, "Manifest is not valid YAML or JSON";
    DUPLICATE_KEY = "NK1002", Error, "Duplicate key";
    NO_KIND = "NK1003", Error, "apiVersion or kind is missing";
    VERSION = "NK1004", Error, "API version is not served";
    KIND = "NK1005", Error, "Unknown kind";
    DEPRECATED = "NK1006", Warning, "API version is deprecated";
    UNKNOWN_FIELD = "NK1010", Error, "Unknown field";
    TYPE = "NK1011", Error, "Wrong type";
    REQUIRED = "NK1012", Error, "Required field is missing";
    ENUM = "NK1013", Error, "Value is not allowed (enum)";
    PATTERN = "NK1014", Error, "Value does not match its pattern";
    RANGE = "NK1015", Error, "Value is out of range";
    LIST = "NK1016", Error, "Duplicate list item";
    FORMAT = "NK1017", Error, "Value has the wrong format";
    NAME = "NK1018", Error, "Invalid object name";
    METADATA = "NK1019", Error, "Invalid label, annotation or owner reference";
    MEANING = "NK1020", Error, "Fields do not make sense together";
    PLACEHOLDER = "NK1021", Error, "Placeholder was not replaced";
    UNQUOTED = "NK1022", Error, "Unquoted value is not a string";
    IGNORED = "NK1023", Warning, "Value that Karpenter ignores";
    RULE = "NK1030", Error, "Validation rule (CEL) of the definition fails";
    BROKEN_RULE = "NK1031", Error, "Validation rule cannot be evaluated";
    DEFINITION = "NK1032", Error, "Field is unknown to the chosen definitions";
}
