//! Objects as the API server sends them, decoded later.
//!
//! Lists and watches of every kind share one implementation this way: the generic ones of `kube` are compiled once
//! instead of once for each kind.

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{ApiResource, DynamicResourceScope};
use kube::{Api, Client, Resource};
use napkeeper_api::types::decode::{DecodeError, decode};
use serde::de::{DeserializeOwned, Deserializer};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;

/// An object of any kind.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub(crate) struct RawObject {
    /// Name, namespace, UID and resourceVersion alone.
    #[serde(skip)]
    meta: ObjectMeta,
    value: Value,
}

impl RawObject {
    /// The object as its kind.
    ///
    /// # Errors
    /// If the object does not match the kind.
    pub(crate) fn read<K: DeserializeOwned>(&self) -> Result<K, DecodeError> {
        decode(&self.value)
    }

    /// Its name, after its namespace if it has one.
    pub(crate) fn key(&self) -> String {
        let parts = self.meta.namespace.iter().chain(&self.meta.name);
        parts.map(String::as_str).collect::<Vec<_>>().join("/")
    }
}

impl<'de> Deserialize<'de> for RawObject {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(from)?;
        let text = |field: &str| value.pointer(field).and_then(Value::as_str).map(str::to_owned);
        let meta = ObjectMeta {
            name: text("/metadata/name"),
            namespace: text("/metadata/namespace"),
            uid: text("/metadata/uid"),
            resource_version: text("/metadata/resourceVersion"),
            ..ObjectMeta::default()
        };
        Ok(Self { meta, value })
    }
}

impl Resource for RawObject {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(kind: &ApiResource) -> Cow<'_, str> {
        kind.kind.as_str().into()
    }

    fn group(kind: &ApiResource) -> Cow<'_, str> {
        kind.group.as_str().into()
    }

    fn version(kind: &ApiResource) -> Cow<'_, str> {
        kind.version.as_str().into()
    }

    fn api_version(kind: &ApiResource) -> Cow<'_, str> {
        kind.api_version.as_str().into()
    }

    fn plural(kind: &ApiResource) -> Cow<'_, str> {
        kind.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.meta
    }
}

/// All objects of a kind, in all namespaces.
pub(crate) fn all<K: Resource<DynamicType = ()>>(client: &Client) -> Api<RawObject> {
    Api::all_with(client.clone(), &ApiResource::erase::<K>(&()))
}

/// The objects of a kind in one namespace.
pub(crate) fn namespaced<K>(client: &Client, namespace: &str) -> Api<RawObject>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    Api::namespaced_with(client.clone(), namespace, &ApiResource::erase::<K>(&()))
}
